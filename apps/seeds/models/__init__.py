"""Frontiers, reports of their segments, operations on them, and resource pools."""

from apps.seeds.models.frontier import Frontier
from apps.seeds.models.operation import Operation
from apps.seeds.models.report import SegmentReport
from apps.seeds.models.resources import Resource, ResourcePool

__all__ = ["Frontier", "Operation", "Resource", "ResourcePool", "SegmentReport"]
