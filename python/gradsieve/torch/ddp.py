"""DistributedDataParallel's communication hook. Each parameter of a bucket is handed in as a tensor of its own when its
bucket is ready; a waiter thread takes the averages in the same order, writes them into the bucket and completes its
Future, while the backward pass goes on. The hook runs on autograd's thread and waits for nobody. Annotations are not
postponed in this file: DDP compares those of the hook with the types themselves."""
import atexit
import contextlib
import dataclasses
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ..errors import GradsieveError, InvalidArgument
from ..job import Job, NonFinitePolicy
from .checkpoints import Checkpoint, Checkpointed
from .fallback import MISSING, Fallback, check_fallback
from .intake import Intake, check_weight
from .member import Member
from .members import Scale, finish_step, trainable
from .probe import Probe, Prober, check_probe_every
from .refusals import refuse_sharding, refuse_sparse
from .second_moments import SecondMoments
from .streams import StreamOrder

DEFAULT_TIMEOUT_S = 1800.0  # DDP's own; a rank that died is noticed within a second, whatever this is
_STOP_TIMEOUT_S = 2.0
_DDP_PREFIX = "module."


@dataclass
class _Work:
    """One bucket on its way."""

    step: int
    buffer: torch.Tensor
    handed_in: list[tuple[Member, torch.Tensor]]
    future: Any
    is_last: bool
    error: GradsieveError | None = None
    weight: float = 1.0
    exact: torch.Tensor | None = None  # the gradients once more, in a probed step
    order: StreamOrder = field(default_factory=StreamOrder)  # of the buffer


def _is_written_by_daemon(buffer: torch.Tensor) -> bool:
    return buffer.is_cuda


def _settled(work: _Work, buffer: torch.Tensor) -> torch.Tensor:
    if work.error is not None:
        raise work.error
    return buffer


class State(Checkpointed):
    """What the hook keeps for one model: its job, its step numbers and its waiter thread.

    model: a DistributedDataParallel, the same on all ranks. job: the job's name, for one that is made and started here
    (waiting for all ranks, at most start_timeout seconds); or a Job that is not started, which the caller starts once
    all its models are registered. codec, run_id, non_finite, socket_path: of the job, as gradsieve.Job takes them; only
    with a name. prefix: names this model's group, where a job has several models, each with its own steps. optimizer,
    grad_scaler: when the learning rate or the loss scale changes, what the daemons keep is rescaled. timeout: seconds
    that a bucket is waited for. fallback: None (an error) or "allreduce", see Fallback. weight: see the property.
    micro_batches: the most backward passes of one step (`no_sync`), each a variance sample; costs as many slabs. probe_every:
    steps between two that are averaged exactly as well, see `probes`; 0 = never. second_moments: a SecondMoments of the model.

    resume: a state_dict of a checkpoint to go on from, see load_state_dict.

    Errors: InvalidArgument, Unimplemented (FSDP, ZeRO, sparse gradients), and those of Job.start."""

    def __init__(self, model: DistributedDataParallel, job: str | Job, *, codec: str | None = None,
                 run_id: str | None = None, non_finite: NonFinitePolicy = NonFinitePolicy.SKIP_STEP,
                 socket_path: str | None = None, prefix: str = "", optimizer: torch.optim.Optimizer | None = None,
                 grad_scaler: object | None = None, timeout: float = DEFAULT_TIMEOUT_S, start_timeout: float = 300.0,
                 fallback: str | None = None, weight: float = 1.0, micro_batches: int = 1, probe_every: int = 0,
                 second_moments: SecondMoments | None = None, resume: Mapping[str, Any] | None = None) -> None:
        refuse_sharding(model, optimizer)
        if not isinstance(model, DistributedDataParallel):
            raise InvalidArgument(f"model is a {type(model).__name__}: allowed is a DistributedDataParallel; wrap it, or use "
                                  "gradsieve.torch.Averager without DDP")
        refuse_sparse(model)
        ignored = set(getattr(model, "parameters_to_ignore", ()))
        named = [(name.removeprefix(_DDP_PREFIX), parameter) for name, parameter in model.named_parameters()]
        parameters = trainable(entry for entry in named if entry[0] not in ignored)
        group = model.process_group
        self.weight = weight
        self._fallback = Fallback(group) if check_fallback(fallback) else None
        self._prober = Prober(group, probe_every) if check_probe_every(probe_every) else None
        is_own = self._is_own = isinstance(job, str)
        if not is_own and codec is not None:
            raise InvalidArgument(f"codec is {codec!r} beside a Job: allowed with a job's name; give it to the Job")
        self._make_job = lambda run: Job(job, dist.get_rank(group), dist.get_world_size(group), codec=codec, run_id=run,
                                         non_finite=non_finite, socket_path=socket_path)
        self._make_intake = lambda: Intake(model, self.job, parameters, prefix, Scale(optimizer, grad_scaler),
                                           micro_batches=micro_batches, second_moments=second_moments,
                                           is_wanted=lambda: not self._is_plain())
        self._group, self._timeout, self._start_timeout = prefix, timeout, start_timeout
        self._device = next(model.parameters()).device
        self._step = 0  # of the backward pass at hand; 0: not known yet
        self._lost_step: int | None = None  # in which the plain path was taken first; of the waiter thread
        self._queue: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.error: GradsieveError | None = None
        name = job if isinstance(job, str) else job.name
        checkpoint = None if resume is None else Checkpoint.of(resume, name, prefix, dist.get_world_size(group))
        if isinstance(job, str):
            self.job = self._make_job(checkpoint.run_id if checkpoint else run_id)
        else:
            self.job = job
        self._join(checkpoint)

    def _join(self, checkpoint: Checkpoint | None) -> None:
        """Registers the model's parameters with the job and, if it is this State's, starts it."""
        self._intake = self._make_intake()
        with self._intake.closed_on_error():
            if checkpoint:
                checkpoint.apply(self.job, self._timeout)
            if self._is_own and self._fallback:
                self._fallback.start(self.job, self._start_timeout, self._device)
            elif self._is_own:
                self.job.start(self._start_timeout)

    def _kept_step(self) -> int:
        return 0 if self._is_plain() else self._step

    @property
    def weight(self) -> float:
        """By what this rank's gradient is multiplied as it is handed in, from the next backward pass on; finite, 0 or more.
        The average is the sum of weighted gradients over the number of ranks. For batches of different sizes and a loss
        that is a mean: this rank's samples x ranks / all ranks' samples. Setting it: InvalidArgument."""
        return self._weight

    @weight.setter
    def weight(self, weight: float) -> None:
        self._weight = check_weight(weight)

    @property
    def probes(self) -> dict[str, Probe]:
        """The newest Probe of each tensor of the job, by name; empty before the first probed step."""
        return dict(self._prober.found) if self._prober else {}

    def status(self) -> dict[str, Any]:
        """Job.status, with `probe` in each tensor's entry (None before its first): step, cosine, relative_error. Errors:
        Job.status's."""
        entry = self.job.status()
        probes = self.probes
        for tensor in entry["tensors"]:
            tensor["probe"] = dataclasses.asdict(probes[tensor["name"]]) if tensor["name"] in probes else None
        return entry

    @property
    def fallback_steps(self) -> int:
        """Steps that torch's own all-reduce averaged."""
        return self._fallback.steps if self._fallback else 0

    @property
    def last_step(self) -> int:
        """The number of the last backward pass that was begun; 0 before the first."""
        return self._step

    def close(self, timeout: float = 10.0) -> None:
        """After training: ends the waiter thread and leaves the job, where it was made here. Call it on all ranks after
        the same step; a program that ends does the same. Errors: Job.detach's."""
        self._stop()
        self._intake.close()
        if self._is_own and not (self._fallback and self._fallback.is_taken):
            self.job.detach(timeout)

    def _stop(self) -> None:
        """Also before the interpreter ends, which a thread inside torch would not survive."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(_STOP_TIMEOUT_S)
            self._thread = None
            atexit.unregister(self._leave_at_exit)

    def _leave_at_exit(self) -> None:
        """Objects of C++ that keep this State may outlive the interpreter: the job is not left to its destructor."""
        with contextlib.suppress(GradsieveError):
            self.close(_STOP_TIMEOUT_S)

    def average(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """What `hook` does. On autograd's thread; buckets come in order, the last one of a pass is marked."""
        buffer = bucket.buffer()
        devices = [buffer.device] if buffer.is_cuda else None
        work = _Work(0, buffer, [], torch.futures.Future(devices=devices), bucket.is_last())
        done = work.future.then(lambda future: _settled(work, future.value()))
        try:
            work.step, work.weight = self._step_of(bucket), self._weight
            if self._prober:
                work.exact = self._prober.copy(work.step, buffer, work.weight)
            work.order.enter(buffer)
            if not self._is_plain():
                self._hand_in(work, bucket)
        except GradsieveError as error:
            work.error = error
        if work.is_last:
            self._intake.end_step()
        if self._thread is None:
            self._thread = threading.Thread(target=self._wait_for_work, name="gradsieve-waiter", daemon=True)
            self._thread.start()
            atexit.register(self._leave_at_exit)
        self._queue.put(work)
        return done  # type: ignore[no-any-return]

    def _step_of(self, bucket: dist.GradBucket) -> int:
        if bucket.index() == 0:
            self._step = self._step + 1 if self._step or self._is_plain() else self.job.first_step(self._group)
        return self._step

    def _is_plain(self) -> bool:
        """Whether torch's own all-reduce averages from here on."""
        return self._fallback is not None and self._fallback.is_taken

    def _hand_in(self, work: _Work, bucket: dist.GradBucket) -> None:
        pairs = [(self._intake.members.of(parameter), gradient)
                 for parameter, gradient in zip(bucket.parameters(), bucket.gradients())]
        self._intake.members.bind(pairs, self._timeout, work.weight)
        for member, gradient in pairs:
            self._intake.hand_in(member, work.step, gradient, work.weight)
            work.handed_in.append((member, gradient))

    def _wait_for_work(self) -> None:
        while work := self._queue.get():
            try:
                self._take(work)
            except GradsieveError as error:
                work.error = error
            except Exception as error:  # of torch: the Future has to end all the same
                work.error = GradsieveError(f"averaging step {work.step}: {error}")
            self.error = work.error or self.error  # before whoever waits goes on
            self._end(work)
            del work  # or the bucket would live until the next one

    def _end(self, work: _Work) -> None:
        """Completes the bucket's Future, in every case: DDP waits for it without a deadline."""
        try:
            work.future.set_result(work.buffer)
        except Exception as refusal:
            self.error = work.error = work.error or GradsieveError(f"averaging step {work.step}: {refusal}")
            with contextlib.suppress(Exception):  # of one that is complete already
                work.future.set_exception(work.error)

    def _take(self, work: _Work) -> None:
        """Waits for a bucket and writes its averages. Only when all ranks have theirs where there is a fallback: until
        then the bucket holds this rank's own gradients (on a GPU the daemon writes it, so that all the rest of a step
        that is under way there fails on all ranks instead)."""
        addresses = self._addresses(work) if not self._is_plain() else None
        if self._fallback:
            missing = work.error if isinstance(work.error, MISSING) else None
            was_taken = self._fallback.is_taken
            if self._fallback.agree(missing, work.buffer.device):
                if not was_taken:
                    self._lost_step = work.step
                self._take_plain(work, missing)
                return
        # By the step's number alone, whatever became of it here: all ranks take part in a collective.
        exact = self._mean(work, work.exact) if work.exact is not None else None
        if work.error is not None:
            raise work.error
        for (member, gradient), address in zip(work.handed_in, addresses or []):
            member.deliver(address, gradient)
            if self._prober and exact is not None:
                self._prober.finish(work.step, member.name, gradient, work.buffer, exact)

    def _mean(self, work: _Work, exact: torch.Tensor) -> torch.Tensor:
        assert self._prober is not None
        work.order.enter(work.buffer)
        return self._prober.mean(exact)

    def _addresses(self, work: _Work) -> list[int] | None:
        """Of the averages; None if the bucket failed, and `work.error` says why."""
        try:
            if work.error is not None:
                return None
            addresses = [member.tensor.wait_for_address(self._timeout) for member, _ in work.handed_in]
            if work.is_last:
                finish_step(self.job, work.step, self._group, self._timeout)
        except GradsieveError as error:
            work.error = error
            return None
        return addresses

    def _take_plain(self, work: _Work, missing: GradsieveError | None) -> None:
        assert self._fallback is not None
        # Not by what this rank handed in: others may have done otherwise, and all of them take part in a collective.
        if _is_written_by_daemon(work.buffer) and work.step == self._lost_step:
            raise missing or GradsieveError(f"step {work.step}: another rank lost its daemon: allowed on a GPU is to go on "
                                            "with the next step; drop this one")
        work.error = None
        work.order.enter(work.buffer)
        if work.weight != 1.0:
            work.buffer.mul_(work.weight)
        self._fallback.average(work.buffer)
        self._fallback.steps += work.is_last


def hook(state: State, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For DistributedDataParallel.register_comm_hook(state, hook): the mean over all ranks, from the daemon. An error
    makes `backward()` raise a RuntimeError with the GradsieveError's text; the error itself is `state.error`."""
    return state.average(bucket)


def register(model: DistributedDataParallel, job: str | Job, **options: Any) -> State:
    """Makes a State with the same arguments and registers the hook on `model`. Once per model, before its first
    backward pass, on all ranks. Errors: State's."""
    state = State(model, job, **options)
    model.register_comm_hook(state, hook)
    return state
