"""Recordings of pages: WARC and HAR files, and folders mapped to host names."""

from yardkit.recordings.base import Recorded, Recording, RecordingError
from yardkit.recordings.opening import open_recording

__all__ = ["Recorded", "Recording", "RecordingError", "open_recording"]
