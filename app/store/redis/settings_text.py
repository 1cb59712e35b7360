"""Encode settings for Redis."""

import json

from pydantic import BaseModel


def settings_text(settings: BaseModel) -> str:
    """Encode settings as JSON. Equal settings give equal text."""
    return json.dumps(settings.model_dump(), sort_keys=True)
