"""The HTTP API: jobs, dead letters, queues, schedules and workers for programs in any language.

    api = create_api(app)          # an ASGI application, to mount below any prefix

`windlass serve` runs it as a server. Needs the extra `server`.
"""

from windlass.core import install_command

try:
    from windlass.http.access import AccessOptions
    from windlass.http.api import WindlassApi, create_api
    from windlass.http.gateway import ApiOptions
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] not in ("jsonschema", "starlette"):
        raise
    raise ModuleNotFoundError(
        f"windlass.http needs the package {error.name}, which is not installed. Install it with: "
        f"{install_command('server')}.",
        name=error.name,
    ) from error

__all__ = ["AccessOptions", "ApiOptions", "WindlassApi", "create_api"]
