"""Scrapy projects on the platform, unchanged: downloads by agents, items to datasets.

Works with Scrapy 2.11 to 2.19. Outside the platform it changes nothing.
"""
