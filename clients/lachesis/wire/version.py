"""What a service says of itself (``GET /version``)."""

from pydantic import BaseModel, Field


class ServiceVersion(BaseModel):
    """The version of a service: the part of the reply that clients read."""

    version: str = Field(description="Its version, such as 0.1.0.")
