"""Training processes for torch_test.py: DistributedDataParallel over Gloo, two processes, gradients through gradsieve.
Run by rank_main.py with torchrun's environment variables."""
import ctypes
import importlib
import os
import signal
import unittest.mock
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradsieve
import gradsieve.torch
from torch_net import (Net, exact_mean, gradients, hash_of, join_processes, largest_difference, local_gradients, loss_of,
                       seeded_net)

TIMEOUT_S = 30
EXACT = "all | f32"


states, job_name = [], "torch"  # of the scenario at hand; names differ, so that no run waits for another one's end


def scenarios(module=__name__, **arguments):
    """Several functions of a file in one process, one after the other: {key: [function, arguments]}."""
    global job_name
    results = {}
    for job_name, (name, own) in arguments.items():
        results[job_name] = getattr(importlib.import_module(module), name)(**own)
        while states:
            states.pop().close()
    return results


def wrap(net, job=None, codec=EXACT, find_unused_parameters=False, **options):
    """The model with its hook; buckets of a few kB, so that there are several and they are rebuilt."""
    model = DistributedDataParallel(net, bucket_cap_mb=0.01, find_unused_parameters=find_unused_parameters)
    states.append(gradsieve.torch.register(model, job or job_name, codec=codec, timeout=TIMEOUT_S, start_timeout=TIMEOUT_S, **options))
    return model, states[-1]


def exact_codec(gradient_as_bucket_view=False):
    """Bits against a mean computed here, and against DDP's own all-reduce, before and after buckets are rebuilt."""
    rank = join_processes()
    model = DistributedDataParallel(seeded_net(), bucket_cap_mb=0.01, gradient_as_bucket_view=gradient_as_bucket_view)
    state = gradsieve.torch.State(model, job_name, codec=EXACT, timeout=TIMEOUT_S, start_timeout=TIMEOUT_S)
    states.append(state)
    buckets = []  # names of each step's buckets, as the hook saw them
    names = {parameter: name for name, parameter in model.module.named_parameters()}

    def watching_hook(state, bucket):
        buckets.append([names[parameter] for parameter in bucket.parameters()] + [bucket.is_last()])
        return gradsieve.torch.hook(state, bucket)

    model.register_comm_hook(state, watching_hook)
    plain = DistributedDataParallel(seeded_net(), bucket_cap_mb=0.01)
    reference = seeded_net()
    is_exact, against_ddp = True, 0.0
    for step in range(1, 5):
        model.zero_grad()
        plain.zero_grad()
        loss_of(model, rank, step).backward()
        loss_of(plain, rank, step).backward()
        is_exact &= all(torch.equal(a, b) for a, b in zip(gradients(model), exact_mean(reference, step)))
        against_ddp = max(against_ddp, largest_difference(gradients(model), gradients(plain)))
    cut = [place + 1 for place, bucket in enumerate(buckets) if bucket[-1]]
    passes = [buckets[begin:end] for begin, end in zip([0, *cut], cut)]
    return {"is_exact": bool(is_exact), "against_ddp": against_ddp, "hash": hash_of(gradients(model)), "last_step": state.last_step,
            "buckets": len(passes[1]), "were_rebuilt": passes[0] != passes[1]}


def train(codec, steps=60, dtype="float32"):
    """Loss before and after, a hash of all parameters, and the daemon's wire ratio."""
    rank = join_processes()
    model, state = wrap(seeded_net(), codec=codec)
    optimizer = torch.optim.SGD(model.parameters(), 0.2, momentum=0.9)
    before = float(loss_of(model, 0, 10_000))
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
    after = float(loss_of(model, 0, 10_000))
    hashed = hash_of(model.parameters())
    state.job.check_equal(gradsieve.digest_of(bytes.fromhex(hashed)), TIMEOUT_S)
    return {"before": before, "after": after, "hash": hashed, "last_step": state.last_step}


def frozen():
    """A layer that is frozen from the beginning, one that is frozen later, and the first one unfrozen."""
    rank = join_processes()
    net = seeded_net()
    net.spare.requires_grad_(False)
    averaging = gradsieve.torch.Averager(net, job_name, codec=EXACT, timeout=TIMEOUT_S)
    loss_of(net, rank, 1).backward()
    averaging.average_gradients()
    is_left_alone = net.spare.weight.grad is None
    net.zero_grad(set_to_none=True)
    net.layers[0].requires_grad_(False)
    loss_of(net, rank, 2).backward()
    averaging.average_gradients()
    is_left_alone &= net.layers[0].weight.grad is None and net.layers[2].weight.grad is not None
    net.spare.requires_grad_(True)
    loss_of(net, rank, 3).backward()
    try:
        averaging.average_gradients()
        text = "no error was seen"
    except gradsieve.FailedPrecondition as error:
        text = str(error)
    averaging.job.detach(TIMEOUT_S)
    return {"is_left_alone": is_left_alone, "text": text}


def late():
    """Rank 1 comes late to a step. Rank 0 runs into its timeout, has another gradient by then, and calls again: the
    average is of what was handed in first, and the step after it is a step of its own."""
    rank = join_processes()
    net = torch.nn.Linear(8, 4)
    averaging = gradsieve.torch.Averager(net, job_name, codec=EXACT, timeout=0.3 if rank == 0 else TIMEOUT_S, start_timeout=TIMEOUT_S)

    def hand_over(value):
        for parameter in net.parameters():
            parameter.grad = torch.full_like(parameter, value)

    timeouts, seen = 0, []
    for step, (zero, one) in enumerate(((1.0, 3.0), (10.0, 20.0)), 1):
        hand_over(one if rank else zero)
        if rank == 1 and step == 1:
            dist.barrier()  # rank 0 has had its timeouts
        while True:
            try:
                averaging.average_gradients()
                break
            except gradsieve.Timeout:
                timeouts += 1
                hand_over(1000.0)
                if timeouts == 2:
                    dist.barrier()
                assert timeouts < 100
        seen += [sorted({float(value) for parameter in net.parameters() for value in parameter.grad.view(-1)})]
    averaging.job.detach(TIMEOUT_S)
    return {"seen": seen, "last_step": averaging.last_step, "was_late": timeouts >= 2}


def open_gradient():
    """A hand-in while the last one is open leaves what the daemon has to read still."""
    rank = join_processes()
    net = torch.nn.Linear(8, 4, bias=False)
    averaging = gradsieve.torch.Averager(net, job_name, codec=EXACT, timeout=TIMEOUT_S)
    member, = averaging._intake.members
    if rank == 1:
        dist.barrier()
    member.hand_in(1, torch.full((4, 8), 1.0 + rank), 1.0)
    text = ""
    if rank == 0:
        try:
            member.hand_in(2, torch.full((4, 8), 1000.0), 1.0)
        except gradsieve.Busy as error:
            text = str(error)
        dist.barrier()
    average = member.average(member.tensor.wait_for_address(TIMEOUT_S)).clone()
    averaging.job.detach(TIMEOUT_S)
    return {"text": text, "is_first": bool((average == 1.5).all())}


def halves(dtype):
    """A model of a half type: each average is the mean in float32, rounded once."""
    kind, rank = getattr(torch, dtype), int(os.environ["RANK"])
    net = torch.nn.Linear(16, 4).to(kind)
    averaging = gradsieve.torch.Averager(net, job_name, codec=EXACT, timeout=TIMEOUT_S)

    def own(of_rank):
        generator = torch.Generator().manual_seed(of_rank)
        return [torch.randn(parameter.shape, generator=generator).to(kind) for parameter in net.parameters()]

    for parameter, gradient in zip(net.parameters(), own(rank)):
        parameter.grad = gradient
    averaging.average_gradients()
    wanted = [((zero.float() + one.float()) * 0.5).to(kind) for zero, one in zip(own(0), own(1))]
    averaging.job.detach(TIMEOUT_S)
    return all(torch.equal(parameter.grad, mean) for parameter, mean in zip(net.parameters(), wanted))


def learning_rate():
    """What was not sent is rescaled when the learning rate changes: half the rate, twice the residual in its unit."""
    net = torch.nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.SGD(net.parameters(), 1.0)
    averaging = gradsieve.torch.Averager(net, job_name, codec="topk(0.001) | f32 | auto", optimizer=optimizer, timeout=TIMEOUT_S)
    gradient = torch.zeros(64, 64)
    gradient.view(-1)[:8] = torch.tensor([800.0, 700, 600, 500, 4, 3, 2, 1])
    net.weight.grad = gradient
    averaging.average_gradients()
    sent = int((net.weight.grad != 0).sum())
    kept = [800.0, 700, 600, 500, 4, 3, 2, 1][sent]
    optimizer.param_groups[0]["lr"] = 0.5
    net.weight.grad = torch.zeros(64, 64)
    averaging.average_gradients()
    averaging.job.detach(TIMEOUT_S)
    return {"sent": sent, "factor": float(net.weight.grad.max()) / kept}


def handed_in_by_dlpack():
    """torch tensors through Tensor.write, without gradsieve.torch: bfloat16 and float32."""
    job = gradsieve.Job(job_name, codec=EXACT)
    tensor = job.add_tensor("weight", (2, 3))
    job.start(TIMEOUT_S)
    seen = []
    for step, kind in enumerate((torch.float32, torch.bfloat16, torch.float16), 1):
        values = torch.arange(6).reshape(2, 3).to(kind) + 0.5
        tensor.submit(step, values)
        seen.append(torch.from_numpy(tensor.wait(TIMEOUT_S).copy()).equal(values.float()))
    texts = []
    for unfit in (torch.zeros(3, 2).t(), torch.zeros(6), torch.zeros(2, 3, dtype=torch.float64)):
        try:
            tensor.write(unfit)
        except gradsieve.InvalidArgument as error:
            texts.append(str(error))
    net = torch.nn.Linear(3, 2)
    job.check_parameters(1, net.parameters(), TIMEOUT_S)  # these need a gradient
    job.detach(TIMEOUT_S)
    digests = [gradsieve.digest_of(torch.tensor(values)) for values in ([1, 2], [1, 2], [1, 3])]  # int64: any type has bytes
    return {"seen": seen, "texts": texts, "digests": digests}


def unused():
    """A layer that no rank uses in one step, and one that only rank 0 uses."""
    rank = join_processes()
    model, state = wrap(seeded_net(), find_unused_parameters=True)
    model.module.uses_spare = False
    loss_of(model, rank, 1).backward()
    is_none = model.module.spare.weight.grad is None
    model.zero_grad()
    model.module.uses_spare = rank == 0
    loss_of(model, rank, 2).backward()
    reference = seeded_net()
    reference.uses_spare = True
    wanted = local_gradients(reference, 0, 2)[-2] * 0.5
    return {"is_none": is_none, "is_half": bool(torch.equal(model.module.spare.weight.grad, wanted)), "last_step": state.last_step}


def without_sync():
    """Two micro-batches with no_sync: one step, of their sum."""
    rank = join_processes()
    model, state = wrap(seeded_net())
    with model.no_sync():
        loss_of(model, rank, 1).backward()
    loss_of(model, rank, 2).backward()
    reference = seeded_net()
    sums = [[a + b for a, b in zip(local_gradients(reference, of, 1), local_gradients(reference, of, 2))] for of in (0, 1)]
    wanted = [(zero + one) * 0.5 for zero, one in zip(*sums)]
    return {"difference": largest_difference(gradients(model), wanted), "last_step": state.last_step}


def uneven():
    """model.join(): rank 1 has fewer batches and contributes zeros after them."""
    rank = join_processes()
    model, state = wrap(seeded_net())
    with model.join():
        for step in range(1, 4 - rank):
            model.zero_grad()
            loss_of(model, rank, step).backward()
            last = gradients(model)
    wanted = [gradient * 0.5 for gradient in local_gradients(seeded_net(), 0, 3)]
    return {"last_step": state.last_step, "difference": largest_difference(last, wanted) if rank == 0 else 0.0}


def two_models():
    """One job, two groups; the second model steps five times as often. The first one's parameters follow their names."""
    rank = join_processes()
    job = gradsieve.Job(job_name, codec=EXACT)
    first, first_state = wrap(seeded_net(), job, None, prefix="g")
    second, second_state = wrap(seeded_net(), job, None, prefix="d")
    job.start(TIMEOUT_S)
    for step in range(1, 3):
        loss_of(first, rank, step).backward()
        for often in range(1, 6):
            second.zero_grad()
            loss_of(second, rank, 10 * step + often).backward()
    wanted = exact_mean(seeded_net(), 25)
    job.detach(TIMEOUT_S)
    return {"steps": [first_state.last_step, second_state.last_step], "difference": largest_difference(gradients(second), wanted)}


def non_finite():
    """A NaN on rank 1: NaN everywhere, in that tensor; and the next step is a good one."""
    rank = join_processes()
    model, state = wrap(seeded_net())
    loss = loss_of(model, rank, 1)
    (loss * float("nan") if rank == 1 else loss).backward()
    are_nan = all(bool(torch.isnan(gradient).all()) for gradient in gradients(model))
    model.zero_grad()
    loss_of(model, rank, 2).backward()
    return {"are_nan": are_nan, "difference": largest_difference(gradients(model), exact_mean(seeded_net(), 2))}


def daemon_dies(fallback=None, as_on_card=False, **options):
    """A good step, then the test kills a daemon, then two more steps. as_on_card: as if the daemon wrote the buckets."""
    if as_on_card:
        gradsieve.torch.ddp._is_written_by_daemon = lambda buffer: True
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    rank = join_processes()
    model, state = wrap(seeded_net(), fallback=fallback, **options)
    loss_of(model, rank, 1).backward()
    print("stepped", flush=True)
    signal.sigwait({signal.SIGUSR1})
    texts, difference = [], 0.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in (2, 3):
            model.zero_grad()
            try:
                loss_of(model, rank, step).backward()
                difference = max(difference, largest_difference(gradients(model), exact_mean(seeded_net(), step)))
                texts.append("")
            except RuntimeError as error:
                texts.append(str(error))
                if fallback is None:
                    break
    return {"texts": texts, "error": type(state.error).__name__, "difference": difference, "plain_steps": state.fallback_steps,
            "warnings": len([entry for entry in caught if "all-reduce" in str(entry.message)])}


def ends_without_close():
    """A step, and the program ends; something keeps the job's handle, as objects of C++ may."""
    rank = join_processes()
    model, state = wrap(seeded_net())
    loss_of(model, rank, 1).backward()
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(state.job._handle))
    return {"last_step": state.last_step}


def daemon_missing(missing_on, fallback=None):
    """No daemon from the beginning, on some ranks or all."""
    rank = join_processes()
    socket = "/nowhere/gradsieved.sock" if rank in missing_on else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model, state = wrap(seeded_net(), fallback=fallback, socket_path=socket)
        except gradsieve.Unavailable as error:
            return {"error": str(error)}
        for step in (1, 2):
            model.zero_grad()
            loss_of(model, rank, step).backward()
    return {"error": "", "difference": largest_difference(gradients(model), exact_mean(seeded_net(), 2)),
            "plain_steps": state.fallback_steps, "warnings": len([e for e in caught if "all-reduce" in str(e.message)])}


def start_differs(run):
    """With a fallback, one rank's start fails for another reason than a missing daemon: nobody waits for it for ever."""
    rank = join_processes()
    shapes = {"mismatch": (3, 3 + rank), "timeout": (3, 3)}[run]
    net = torch.nn.Linear(*shapes, bias=False)
    job = gradsieve.Job(job_name if run == "mismatch" else f"{job_name} {rank}", codec=EXACT)
    job.add_tensor("weight", tuple(net.weight.shape))
    fallback = gradsieve.torch.fallback.Fallback(dist.group.WORLD)
    try:
        fallback.start(job, 1.0 + 0.5 * rank, torch.device("cpu"))
    except gradsieve.GradsieveError as error:
        return str(error)
    return "no error was seen"


def one_start_fails():
    """Only rank 1's start fails."""
    rank = join_processes()
    job = unittest.mock.Mock(start=unittest.mock.Mock(side_effect=gradsieve.VersionMismatch("too old") if rank == 1 else None))
    try:
        gradsieve.torch.fallback.Fallback(dist.group.WORLD).start(job, TIMEOUT_S, torch.device("cpu"))
    except gradsieve.GradsieveError as error:
        return str(error)
    return "no error was seen"


def averager(codec=EXACT, steps=3):
    """The loop without DDP: parameters from rank 1, then averages; a parameter without gradient counts as zero."""
    rank = join_processes()
    torch.manual_seed(rank)
    net = Net()
    averaging = gradsieve.torch.Averager(net, job_name, codec=codec, timeout=TIMEOUT_S)
    averaging.broadcast_parameters(root=1)
    torch.manual_seed(1)
    is_broadcast = all(torch.equal(a, b) for a, b in zip(net.parameters(), Net().parameters()))
    net.uses_spare = rank == 0
    reference, is_exact = Net(), True
    reference.load_state_dict(net.state_dict())
    for step in range(1, steps + 1):
        net.zero_grad(set_to_none=True)
        loss_of(net, rank, step).backward()
        averaging.average_gradients()
        reference.uses_spare = True
        zero = local_gradients(reference, 0, step)
        reference.uses_spare = False
        one = local_gradients(reference, 1, step)
        is_exact &= all(torch.equal(p.grad, (a + b) * 0.5) for p, a, b in zip(net.parameters(), zero, one))
    averaging.job.detach(TIMEOUT_S)
    return {"is_broadcast": is_broadcast, "is_exact": bool(is_exact), "last_step": averaging.last_step}
