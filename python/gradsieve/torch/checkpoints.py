"""Checkpoints of what the daemons keep for a model. The dictionary is small: it names a step, which every daemon keeps on its
own disk until newer ones are complete; with portable=True it holds this node's part as well. Callers' threads."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import FailedPrecondition, GradsieveError, InvalidArgument
from ..job import Job

FORMAT = 1
_KEYS = {"format": int, "job": str, "run_id": str, "group": str, "step": int, "world_size": int, "parts": list}


@dataclass(frozen=True)
class Checkpoint:
    """A state_dict that was read and looks like one."""

    job: str
    run_id: str
    group: str
    step: int  # 0: nothing was kept when it was made
    world_size: int
    parts: list[dict[str, Any]]
    state: bytes | None

    @staticmethod
    def of(saved: Mapping[str, Any], job: str, group: str, world_size: int) -> Checkpoint:
        """Errors: InvalidArgument (no state_dict, or of another job, group or world; the value is named)."""
        for key, kind in _KEYS.items():
            if not isinstance(saved, Mapping) or not isinstance(saved.get(key), kind):
                raise InvalidArgument(f"state_dict without a good '{key}': allowed is what state_dict() gave back; load that")
        if saved["format"] != FORMAT:
            raise InvalidArgument(f"state_dict of format {saved['format']}: allowed is {FORMAT}; use the release that made it")
        for key, value in (("job", job), ("group", group), ("world_size", world_size)):
            if saved[key] != value:
                raise InvalidArgument(f"state_dict of {key} {saved[key]!r}: allowed is this one's, {value!r}; what is kept belongs "
                                      "to one job, group and number of ranks")
        return Checkpoint(saved["job"], saved["run_id"], saved["group"], saved["step"], saved["world_size"], saved["parts"],
                          saved.get("state"))

    def apply(self, job: Job, timeout: float) -> None:
        """Before the job's start. Errors: those of import_snapshot and resume_from; InvalidArgument (another run)."""
        if job.run_id != self.run_id:
            raise InvalidArgument(f"state_dict of run '{self.run_id}', and the job's run id is '{job.run_id}': allowed is the "
                                  f"same; make the Job with run_id='{self.run_id}'")
        if self.step == 0:
            return
        if self.state is not None:
            job.import_snapshot(self.state, timeout)
        own = next((part for part in self.parts if job.rank in part["ranks"]), None)
        job.resume_from(self.step, group=self.group, digest=int(own["digest"], 16) if own else 0)


def make_state_dict(job: Job, step: int, group: str, portable: bool, timeout: float) -> dict[str, Any]:
    """Asks every daemon to keep `step`; see State.state_dict. Errors: Job.request_snapshot's and export_snapshot's."""
    saved: dict[str, Any] = {"format": FORMAT, "job": job.name, "run_id": job.run_id, "group": group, "step": step,
                             "world_size": job.world_size, "parts": []}
    if step == 0:
        return saved
    snapshot = job.request_snapshot(step, timeout, group=group)
    saved["parts"] = [{"node": part.node, "ranks": list(part.ranks), "digest": f"{part.digest:016x}", "bytes": part.size_bytes}
                      for part in snapshot.parts]
    if portable and any(part.size_bytes for part in snapshot.parts):
        saved["state"] = job.export_snapshot(step, timeout, group=group)
    return saved


def why_not_now(last_step: int) -> GradsieveError | None:
    """For a load that comes too late."""
    if last_step == 0:
        return None
    return FailedPrecondition(f"load_state_dict after step {last_step}: allowed is before the first backward pass; make the "
                              "object anew and load then")


class Checkpointed:
    """state_dict and load_state_dict of what averages a model's gradients through a job: State and Averager. They have the
    attributes below and `_make_job(run_id)`, `_join(checkpoint)` and `_kept_step()`, the step that a state_dict names."""

    job: Job
    last_step: int
    _group: str
    _timeout: float
    _start_timeout: float
    _is_own: bool
    _intake: Any

    def state_dict(self, portable: bool = False) -> dict[str, Any]:
        """A small dictionary that names the last step (job, run id, step, digests), for a checkpoint. Asks every daemon of
        the job to keep what it has of that step, and waits until all have it on disk, which takes as long as writing the
        residuals and variances. Call it between two steps, which is after `backward()` and before the next one or between
        two calls of `average_gradients`, on one rank or on all; save the model's and the optimizer's state of the same step
        beside it. portable: this node's part is in the dictionary too, so that it may go on on another machine: call it on
        one rank of each node then, and load it there. Errors: Job.request_snapshot's, naming the node."""
        return make_state_dict(self.job, self._kept_step(), self._group, portable, self._timeout)

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Goes back to the step of a `state_dict()`, on every node or on none. Called by all ranks, with the same step, before
        the first step (and after `broadcast_parameters`' last). A job that was made here is left and started again under the
        checkpoint's run id: giving `resume=` when this is made saves that. A Job of the caller's is not started yet and has
        the checkpoint's run id. Errors: NotFound naming the node that lacks the step and what it has, InvalidArgument,
        Mismatch, FailedPrecondition (too late), Job.start's."""
        checkpoint = Checkpoint.of(saved, self.job.name, self._group, self.job.world_size)
        if error := why_not_now(self.last_step):
            raise error
        if not self._is_own:
            return checkpoint.apply(self.job, self._timeout)
        self._intake.close()
        self.job.detach(self._start_timeout)
        self.job = self._make_job(checkpoint.run_id)
        self._join(checkpoint)
