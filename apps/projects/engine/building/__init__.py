"""How a tag becomes an image: clone, prepare, build, check, store. Plain Python."""

from apps.projects.engine.building.control import BuildFailed, Control, Stopped
from apps.projects.engine.building.logs import BuildLog
from apps.projects.engine.building.plan import BuiltImage, Plan
from apps.projects.engine.building.steps import build_image

__all__ = [
    "BuildFailed",
    "BuildLog",
    "BuiltImage",
    "Control",
    "Plan",
    "Stopped",
    "build_image",
]
