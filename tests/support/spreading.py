"""Which tests a process gets together, and in which order: xdist's groups, and modules.

A module stays together: its fixtures are made once, and the process that spreads the tests looks
through hundreds of units after each test, not through ten thousand, which took it half a minute.
Only where a test takes seconds, each one is a unit of its own.
"""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadGroupScheduling

ALONE: Final = tuple(
    f"tests/{each}"
    for each in (
        *("benchmarks/", "conformance/", "features/archive/", "journeys/", "model/", "spark/"),
        *("features/cluster/", "features/authority/test_fail_over", "features/ha/test_following"),
        *("features/standby/test_bad_days", "features/standby/test_clients"),
    )
)


class Spreading(LoadGroupScheduling):  # type: ignore[misc]
    """--dist=loadgroup with modules; tests that wait come between those that compute."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return scope if scope.startswith(ALONE) else scope.split("::")[0]

    def schedule(self) -> None:
        is_first = self.collection is None
        super().schedule()
        if is_first:
            self._mix()

    def _mix(self) -> None:
        """Groups first, because some take minutes; then modules, with single tests among them.

        xdist begins with the largest units: nobody would compute while the single tests wait.
        """
        places: dict[str, float] = {}
        for is_one in (False, True):
            scopes = [
                scope
                for scope, tests in self.workqueue.items()
                if scope.startswith("tests/") and (len(tests) == 1) is is_one
            ]
            places |= {scope: (at + 0.5) / len(scopes) for at, scope in enumerate(scopes)}
        for scope in sorted(self.workqueue, key=lambda scope: places.get(scope, 0)):
            self.workqueue.move_to_end(scope)
