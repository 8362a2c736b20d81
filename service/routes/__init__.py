"""The endpoints, one file a group. Each has a ``router`` that ``service.app`` includes."""
