"""Build of an image from a tag: clone, prepare, build, check, store. Plain Python."""

from apps.projects.engine.builder.control import BuildControl, BuildStepFailed, BuildStopped
from apps.projects.engine.builder.logs import BuildLog
from apps.projects.engine.builder.plan import BuildPlan, BuiltImage
from apps.projects.engine.builder.steps import build_image

__all__ = [
    "BuildControl",
    "BuildLog",
    "BuildPlan",
    "BuildStepFailed",
    "BuildStopped",
    "BuiltImage",
    "build_image",
]
