"""Frontiers, what is reported of their segments, what is done to them, and pools of resources."""

from apps.seeds.models.frontier import Frontier
from apps.seeds.models.operation import Operation
from apps.seeds.models.report import SegmentReport
from apps.seeds.models.resources import Resource, ResourcePool

__all__ = ["Frontier", "Operation", "Resource", "ResourcePool", "SegmentReport"]
