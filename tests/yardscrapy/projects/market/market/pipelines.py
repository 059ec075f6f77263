"""Pipelines of the project: one drops, one fails, one changes items after they were scraped."""

from itemadapter import ItemAdapter
from scrapy.exceptions import DropItem


class Checked:
    def process_item(self, item, spider=None):
        values = ItemAdapter(item)
        if values.get("drop"):
            raise DropItem("no price")
        if values.get("fail"):
            raise KeyError("price")
        return item
