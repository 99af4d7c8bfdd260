"""Errors of jobs. Each message has the next step."""

from __future__ import annotations

from barnabas.errors import BarnabasError


class JobRefused(BarnabasError):
    """The job cannot do what was requested. It has changed nothing, or left a state from which a rerun continues."""


class DamagedArchive(JobRefused):
    """A file of an archive is missing, or it is not the file that the manifest describes."""


class CopyDiffers(BarnabasError):
    """A copy does not have the same records as its source."""


class OtherWriter(BarnabasError):
    """Another client writes to the topic to which a job copies records."""
