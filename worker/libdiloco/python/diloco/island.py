# SPDX-License-Identifier: Apache-2.0
"""An island of a run, as a training loop sees it."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
import time
import weakref
from typing import Any, Iterable, Iterator, Mapping

from . import _abi
from ._dealing import ENDED, Dealing
from ._errors import DilocoError, Interrupted, Refused, Unreachable
from ._metrics import of_run
from ._sampler import Sampler, shard_of
from ._sampler import check as check_sampler
from ._schedule import Schedule, own_scheduler
from ._seeds import seed_all
from ._signals import Ending, Signals
from ._tensors import Buffers, Tensors

KEPT = ("anchor", "sent", "aside", "past", "carry")  # enum diloco_kept
_RATE_S = 2.0  # over which tokens a second are measured
_LATE_S = 2.0  # after which it is said that no daemon is there


_log = logging.getLogger("diloco")

_last: "weakref.ref[Island] | None" = None  # of this process, attached or not any more


def _lent(kept: Any) -> tuple[int | None, int]:
    """Where the bytes of a state are, and how many; they stay their owner's, who outlives the call."""
    if hasattr(kept, "data_ptr"):  # a tensor of bytes, as torch.save() keeps it
        if kept.device.type != "cpu" or kept.element_size() != 1 or not kept.is_contiguous():
            raise DilocoError("attach(state=): what is kept is not the bytes that state_dict() gave")
        return (kept.data_ptr() or None, kept.numel())
    if isinstance(kept, bytes):
        return (ctypes.cast(ctypes.c_char_p(kept), ctypes.c_void_p).value if kept else None, len(kept))
    return (ctypes.addressof(ctypes.c_char.from_buffer(kept)) if len(kept) else None, len(kept))


class Island:
    """Made by diloco.attach(). One thread uses it."""

    def __init__(
        self,
        tensors: Tensors,
        *,
        socket: str | None,
        trainer: str,
        wait: float,
        kept: Any,
        group: Any,
        ending: float | None = None,
    ):
        """kept: of Island.state_dict(), or {"kept": the bytes of Island.kept()}"""
        self._library = _abi.library()
        self._tensors = tensors
        self._signals = Signals()
        self._ending, self._ending_wait = Ending(), ending
        self._group = group
        self._handle = ctypes.c_void_p()
        self._socket = socket if socket is not None else os.environ.get("DILOCO_SOCKET", "")
        self._waits_from: float | None = time.monotonic()
        self._waits = wait
        self._interrupted: Any = _abi.INTERRUPTED_CALL(self._waited)
        self._before_moves: Any = _abi.BEFORE_MOVES(self._place)
        self._kept_values: Any = _abi.KEPT_VALUES(self._take_kept)
        self._trainer = trainer
        self._misplaced: BaseException | None = None
        self._rate_from = time.monotonic()
        self._rate_tokens = 0
        self._rate = 0.0
        self.done = False
        self.skipped = 0  # steps that changed nothing, and were not counted
        self._away = False  # the anchor's values are in the place of our own
        self._said_loaded = self._said_idle = False
        self._loose = False  # steps were taken since anything was saved or finished
        self._dealing: Dealing | None = None  # once somebody samples
        self._life = ENDED
        self._alone()
        self._begin(kept)

    def _begin(self, kept: Any) -> None:
        options = _abi.sized(
            _abi.Options,
            socket_path=self._socket.encode() or None,
            trainer=self._trainer.encode(),
            wait_ms=int(self._waits * 1000),
            interrupted=self._interrupted,
            before_moves=self._before_moves,
            kept_values=self._kept_values,
        )
        if self._tensors.device is not None:
            options.device = ctypes.pointer(self._tensors.device)
        if self._group is not None:
            options.group = ctypes.pointer(self._group.struct)
        self._taking = self._whole(kept) if kept is not None else None
        if self._taking is not None:
            options.kept, options.kept_bytes = _lent(self._taking.get("kept", b""))
        try:
            self._tensors.open()
            self._check(self._call("diloco_attach", ctypes.byref(options), ctypes.byref(self._handle), handle=False))
            self._waits_from = None
            self.names = [tensor.name for tensor in self._tensors]
            for tensor in self._tensors:
                self._check(self._call("diloco_register", ctypes.byref(tensor.as_struct())))
            for frozen in self._tensors.frozen:
                self._check(self._call("diloco_register_frozen", ctypes.byref(frozen.as_struct())))
            start = _abi.sized(_abi.Start)
            self._check(self._call("diloco_begin", ctypes.byref(start)))
        except BaseException:
            self.detach()
            raise
        finally:
            self._taking = None
        self.start_step, self._steps, self.version = start.step, start.steps, start.version
        self.tokens, self.tokens_counted = start.tokens, start.tokens_counted
        self.index, self.count, self.name = start.island_index, start.islands_count, start.island.decode()
        self.done = self.start_step >= self.steps
        self._life += 1
        self._after()
        if self._ending_wait is not None:
            self._ending.begin()

    def _whole(self, kept: Any) -> dict[str, Any]:
        """What is to be gone on from, if it is that."""
        follows = self._group is not None and self._group.rank > 0
        if not isinstance(kept, Mapping) or ("kept" not in kept and not follows):
            raise DilocoError("attach(state=) is not what state_dict() of an island gave")
        if len(kept.get("kept", "")) == 0 and not follows:
            raise DilocoError(
                "attach(state=) is empty, so this island's part of the checkpoint is lost; leave state= out to "
                "begin with the run's parameters"
            )
        return dict(kept)

    def _take_kept(self, _user: Any, number: int, kind: int, address: int, count: int) -> int:
        try:
            name, taking = self._tensors.described[number].name, self._taking
            if taking is None:
                raise DilocoError("attach(state=) is there in rank 0, and not in this one")
            if name not in taking.get(KEPT[kind], {}):
                what = f"{KEPT[kind]!r} of {name}"
                raise DilocoError(f"attach(state=) has no {what}: it is incomplete, or of another model")
            self._tensors.take(number, taking[KEPT[kind]][name], address, count)
        except BaseException as error:  # no exception passes through C
            self._misplaced = error
            return -1
        return 0

    def _alone(self) -> None:
        """The daemon would wait for the end of the one to take the other."""
        global _last
        before = _last() if _last is not None else None
        if before is not None and before.held and before._socket == self._socket:
            raise DilocoError(
                f"this process is attached to {self._socket} already; finish() and detach() that island first"
            )
        _last = weakref.ref(self)

    # ---- calls into the library ----

    def _waited(self, _user: Any) -> int:
        """Called while the library waits. Whoever waits for a daemon that is not there learns it soon, and once."""
        late = self._waits_from is not None and time.monotonic() - self._waits_from >= _LATE_S
        if late:
            self._waits_from = None
            gateway = self._socket.startswith("tcp://")
            whom = "diloco-gateway, with all ranks, answers at" if gateway else "daemon answers at"
            what = "its diloco-gateway's address, and do all ranks run" if gateway else "its worker.sock"
            print(
                f"diloco: no {whom} {self._socket} yet; waiting for {self._waits:g} s at most. "
                f"Is the island started (dilococtl start), is this {what}? "
                "diloco.attach(wait=...) and DILOCO_SOCKET say how long and where.",
                file=sys.stderr,
                flush=True,
            )
        self._end_if_asked()
        return 1 if self._signals.seen or self._lost() is not None else 0

    def _lost(self) -> str | None:
        """The rank without which there is nothing to wait for."""
        return self._group.lost() if self._group is not None else None

    def _end_if_asked(self) -> None:
        if self._group is not None and self._group.is_to_end(self._ending.asked):
            self._ending.asked = True
        if self._ending.asked and self._handle:
            self._library.diloco_ending(self._handle, int((self._ending_wait or 0) * 1000))

    def _place(self, _user: Any) -> int:
        """Called before values are moved: parameters may have got new storage since."""
        try:
            for number, address in self._tensors.moved():
                self._library.diloco_place(self._handle, number, address)
            self._tensors.before_moves()
        except BaseException as error:  # no exception passes through C
            self._misplaced = error
            return -1
        return 0

    def _call(self, name: str, *arguments: Any, handle: bool = True) -> int:
        if handle and not self._handle:
            raise DilocoError(f"{name}() after detach()")
        if self._away and name in ("diloco_step", "diloco_finish", "diloco_keep", "diloco_keep_begin"):
            raise DilocoError(f"{name}() within anchor(): this island's own values are not there")
        function = getattr(self._library, name)
        with self._signals:
            return function(self._handle, *arguments) if handle else function(*arguments)

    def _check(self, result: int) -> int:
        if result in (_abi.OK, _abi.STOP, _abi.OPEN):
            return result
        misplaced, self._misplaced = self._misplaced, None
        if misplaced is not None:
            raise misplaced
        lost = self._lost() if result == _abi.INTERRUPTED else None
        if lost is not None:
            raise DilocoError(lost)
        text = self._library.diloco_error(self._handle).decode(errors="replace")
        kinds = {_abi.REFUSED: Refused, _abi.UNREACHABLE: Unreachable, _abi.INTERRUPTED: Interrupted}
        kind = kinds.get(result, DilocoError)
        moves = getattr(self._tensors, "_moves", None)
        for source in (self._group, moves):
            failure = getattr(source, "failure", None)
            if failure is not None:
                raise kind(f"{text}: {failure}") from failure
        raise kind(text)

    def _after(self) -> None:
        """Ranks that hold copies of what has changed get it from who has it."""
        if self._tensors.watched and self._library.diloco_changed(self._handle, _abi.ANY):
            changed = self._library.diloco_changed
            self._tensors.changed([n for n in self._tensors.watched if changed(self._handle, n)])
        self._tensors.after_moves(lambda number: self._library.diloco_changed(self._handle, number))
        if self._dealing is not None:
            self._write_dealing(self._dealing)

    # ---- the three lines ----

    def step(self, tokens: Any = 0, loss: Any = None, lr: float = 0.0, grad_norm: float = 0.0) -> bool:
        """After each optimizer step. `tokens` are those that the island has trained in it, in all its ranks. False:
        the run's steps are done, or the island is to leave; call finish() then. A step that has changed no parameter,
        as a GradScaler skips some, is not counted, where there is one rank: it is as if it had not been called.
        Tensors on a GPU are not waited for: a loss is shown, and tokens are counted, when it has come to them."""
        if self._tensors.loaded:
            self._say_loaded()
        if self._handle and self._tensors.stood_still() and self._group is None:  # ranks might not agree
            self.skipped += 1
            self._say_idle()
            return not (self.done or self._ending.asked)
        self._say_idle()
        now = time.monotonic()
        tokens = self._tensors.tokens_of(tokens, self.run_step + 1 >= self.steps)
        self._rate_tokens += tokens
        if now - self._rate_from >= _RATE_S:
            self._rate = self._rate_tokens / (now - self._rate_from)
            self._rate_from, self._rate_tokens = now, 0
        report = _abi.sized(
            _abi.Report,
            tokens=tokens,
            loss=self._tensors.loss_of(loss),
            tokens_per_s=self._rate,
            lr=lr,
            grad_norm=grad_norm,
        )
        self._end_if_asked()
        result = self._check(self._call("diloco_step", ctypes.byref(report)))
        self._after()
        self.done, self._loose = self.done or result == _abi.STOP, True
        return not self.done

    def _say_loaded(self) -> None:
        self._tensors.loaded = False
        if self._said_loaded:
            return
        self._said_loaded = True
        _log.warning(
            "island %s: values were loaded into the model (load_state_dict) after attach(): where they differ from "
            "what was there, that is contributed as if it were trained. Load a checkpoint before attach(state=), or "
            "give its state to island.load_state_dict() after it",
            self.name,
        )

    def _say_idle(self) -> None:
        if self._tensors.idle > 0 and not self._said_idle:
            self._said_idle = True
            _log.warning(
                "island %s: no parameter has changed in the last %d steps, so there is nothing to contribute: was the "
                "optimizer given the parameters of another model? Make it from the one that attach() was given",
                self.name,
                self._tensors.idle,
            )

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        """What `loader` gives, pass after pass, until step() has been False; of a sampler that draws by passes, as
        DistributedSampler, each has its own order."""
        number = 0
        while not self.done:
            for one in (loader, getattr(loader, "sampler", None)):
                if one is not None and hasattr(one, "set_epoch"):
                    one.set_epoch(number)
            count = 0
            for count, batch in enumerate(loader, 1):
                yield batch
                if self.done:
                    return
            if count == 0:
                raise DilocoError("batches(): the loader gives none")
            number += 1

    def finish(self) -> bool:
        """Has the last contributions counted, and waits for the run's end: then all islands hold the same parameters,
        and it is True. False: others may still change them (why() says who), or the script was to end before the run
        did (ending)."""
        self._end_if_asked()
        result = self._check(self._call("diloco_finish"))
        self._loose = False
        if self._group is not None:
            self._group.part()
        self._ending.end()  # what the script does from now on a SIGTERM ends as ever, whether it detaches or not
        self._after()
        return result == _abi.OK

    # ---- what it knows ----

    @property
    def run_step(self) -> int:
        """The run's step after the last step(): learning rates go by it. It skips on an island slower than others."""
        return int(self._library.diloco_run_step(self._handle)) if self._handle else 0

    @property
    def steps(self) -> int:
        """The run's length, as it was at the last step(): an operator may change it (dilococtl set steps=N)."""
        if self._handle:
            self._steps = int(self._library.diloco_run_steps(self._handle))
        return self._steps

    @property
    def attached(self) -> bool:
        """Whether a daemon is there just now; without one training goes on alone."""
        return bool(self._handle) and self._library.diloco_attached(self._handle) != 0

    @property
    def ending(self) -> bool:
        """Whether a SIGTERM has asked the script to end, so that step() is False. finish() then contributes what is
        there, and takes no longer than attach(ending=) says; what state_dict() has kept goes on at the next start."""
        return self._ending.asked

    def end_soon(self) -> None:
        """For who handles a SIGTERM himself: as if it had come to a script that does not. step() is False, and finish()
        contributes what is there and takes no longer than attach(ending=) says."""
        self._ending.asked = True

    @property
    def held(self) -> bool:
        """Whether it is in use: from attach() to detach()."""
        return bool(self._handle)

    def changed(self, name: str) -> bool:
        """Whether attach(), or the last step() or finish(), changed this tensor: its copies are to be made anew."""
        return self._library.diloco_changed(self._handle, self.names.index(name)) != 0

    def changed_numbers(self) -> list[int]:
        return [n for n in range(len(self.names)) if self._library.diloco_changed(self._handle, n)]

    def why(self) -> str:
        """The last thing that the library had to say."""
        return self._library.diloco_error(self._handle).decode(errors="replace")

    @property
    def leads(self) -> bool:
        """Whether this is the only rank, or the first of several."""
        return self._group is None or bool(self._group.rank == 0)

    def metrics(self, drift: bool = False) -> dict[str, Any]:
        """Of the run as this island knows it, asked of its daemon: `run_step`, `steps`, `skipped` (steps not counted,
        as they changed nothing), `attached`; `step` (of the newest result), `versions` (results taken in, of all
        fragments), `islands`, `islands_up`, `contributors`, `bytes_sent`, `bytes_received`, `tokens_counted`,
        `left_s`, `anchors` (a hash, equal on islands that hold the same), `degraded` (codes of docs/FORMATS.md),
        `losses` and `steps_of` by island; with `drift`, drift(), which takes its time. It waits for an answer; see
        diloco.loggers. DilocoError: there is none."""
        own: dict[str, Any] = {"run_step": self.run_step, "steps": self.steps}
        own |= {"skipped": self.skipped, "attached": self.attached}
        if drift:
            own["drift"] = self.drift()
        return own | of_run(self._socket)

    def drift(self) -> float:
        """How far this island's parameters are from the run's, as a part of these: |own - run's| / |run's|, over the
        values that this rank has. It reads all of them, and waits for a GPU: not for every step."""
        if not self._handle:
            raise DilocoError("drift() after detach()")
        if self._away:
            raise DilocoError("drift() within anchor(): this island's own values are not there")
        away, size = self._tensors.distance(self._read)
        return float((away / size) ** 0.5) if size > 0 else 0.0

    # ---- the shared model ----

    def _read(self, number: int, address: int, count: int) -> None:
        self._check(self._call("diloco_anchor", ctypes.c_int(number), ctypes.c_void_p(address), ctypes.c_uint64(count)))

    @contextlib.contextmanager
    def anchor(self) -> Iterator[None]:
        """Within it the parameters are the run's, as the islands share them, and not this island's own: to evaluate or
        save them. After it they are as they were. Between steps; all ranks call it. It takes as much memory as the
        parameters do."""
        if not self._handle:
            raise DilocoError("anchor() after detach()")
        if self._away:
            raise DilocoError("anchor() within anchor()")
        back = self._tensors.exchange(self._read)
        self._away = True
        try:
            if self._group is not None:
                self._group.meet()
            yield
        finally:
            self._away = False
            back()

    # ---- data, checkpoints ----

    def seed(self, base: int = 0) -> int:
        """For the generators that draw batches, dropout and the like: another one on each island and after each
        restart, the same in all ranks of an island, below 2**31. With equal seeds all islands draw the same."""
        if not self._handle:
            raise DilocoError("seed() after detach()")
        return int(self._library.diloco_seed(self._handle, base & (2**64 - 1)))

    def sampler(self, dataset: Any, per_step: int, seed: int = 0, group: Any = "auto") -> Sampler:
        """Numbers of samples of a dataset that all islands have, `per_step` for each optimizer step, without an end:
        DataLoader(dataset, batch_size, sampler=island.sampler(dataset, batch_size)). The run deals them, so that no
        other island draws the same one in a pass, whoever comes or goes; `[worker] units` in the island's dilocod.conf
        tells it of `per_step`, and what goes beyond that is drawn from a part of the dataset that is this island's own.
        `seed`, of the order, and the dataset have to be the same on all islands.

        per_step: what an optimizer step draws in all ranks and micro-batches
        group: of torch.distributed, the ranks that share these out evenly, each drawing its own; "auto": all of the
            island; None: every rank draws all, as where something else shares them out
        """
        return self._sampler("sampler()", dataset, per_step, seed, group)

    def shard(self, dataset: Any, per_step: int, seed: int = 0, group: Any = "auto") -> Any:
        """The samples that sampler() draws, one after the other and without an end: a torch IterableDataset, for
        loaders that take no sampler, DataLoader(island.shard(dataset, n), batch_size=n). As islands come and go it
        follows, in a loader's worker, too; of these one, at most, and none where several ranks draw the same."""
        sampler = self._sampler("shard()", dataset, per_step, seed, group)
        ranks = self._group.count if self._group is not None else 1
        return shard_of(dataset, sampler, ranks // self._place_in(group)[1])

    def _sampler(self, call: str, dataset: Any, per_step: int, seed: int, group: Any) -> Sampler:
        rank, ranks = self._place_in(group)
        wrong = check_sampler(call, dataset, per_step, ranks)
        if wrong is None and not self._handle:
            wrong = f"{call} after detach()"
        if wrong is None and not self._library.diloco_deals(self._handle):
            wrong = "no data is dealt to this island: [worker] stream in its dilocod.conf says that it has its own"
        if wrong is not None:
            raise DilocoError(wrong)
        if self._dealing is None:
            self._dealing = Dealing()
            self._write_dealing(self._dealing)
        return Sampler(self._dealing, len(dataset), per_step, seed & (2**64 - 1), rank, ranks)

    def _place_in(self, group: Any) -> tuple[int, int]:
        """This rank's, among how many."""
        if group is None or (group == "auto" and self._group is None):
            return 0, 1
        if group == "auto":
            return self._group.rank, self._group.count
        import torch.distributed as dist

        rank = dist.get_rank(group)
        if rank < 0:
            raise DilocoError("sampler(group=): this rank is not in it, so no samples are its own")
        return rank, dist.get_world_size(group)

    def _write_dealing(self, dealing: Dealing) -> None:
        said = _abi.sized(_abi.Dealing)
        self._check(self._library.diloco_dealing(self._handle, ctypes.byref(said)))
        dealing.write(self._life, self.run_step, said)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps beside model and optimizer, for attach(..., state=) or load_state_dict(): fp32
        tensors in host memory, 8 bytes a parameter (and 4 for each of 16 bits; twice as much where the overlap is a
        whole interval), each rank's its own parts, as it has them of the parameters. For torch.distributed.checkpoint,
        too, which then reads them for any ranks. All ranks call it; where they hold copies, rank 0 may do so alone."""
        if not self._handle:
            raise DilocoError("state_dict() after detach()")
        state: dict[str, Any] = {"run_step": self.run_step}
        if not self._keeps():
            return state
        self._check(self._call("diloco_keep_begin"))
        for number, tensor in enumerate(self._tensors):
            for kind, word in enumerate(KEPT):
                if self._library.diloco_keep_values(self._handle, number, kind, None, 0) == 1:
                    values, address, count = self._tensors.room(number)
                    self._check(self._library.diloco_keep_values(self._handle, number, kind, address, count))
                    state.setdefault(word, {})[tensor.name] = values
        room = self._library.diloco_keep_rest_bytes(self._handle)
        state["kept"] = self._tensors.saved(self._written("diloco_keep_rest", room, share=True))
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what state_dict() gave, after model and optimizer were loaded: attaches anew. Whoever has a
        state before attach() gives it there. All ranks call it."""
        if not self._handle:
            raise DilocoError("load_state_dict() after detach()")
        self._whole(state)
        self._loose = False
        self._end_session()
        self._waits_from = time.monotonic()
        self._begin(state)

    def kept(self) -> bytearray:
        """The same of all ranks together as so many bytes, for attach(..., state={"kept": these}): for who saves one
        file an island. They are made once and copied nowhere, as of a large model they are gigabytes. Of ranks the
        first one gets them, the others none."""
        if not self._handle:
            raise DilocoError("state_dict() after detach()")
        return self._written("diloco_keep", self._library.diloco_keep_bytes(self._handle))

    def _keeps(self) -> bool:
        """Whether this rank has anything to save."""
        alone = self._library.diloco_keep_ranks(self._handle) == 1
        return not alone or self._group is None or self._group.rank == 0

    def _written(self, call: str, room: int, share: bool = False) -> bytearray:
        """What a call of all ranks writes in rank 0; with `share`, all of it, to all."""
        memory = bytearray(max(1, room))
        view = (ctypes.c_char * len(memory)).from_buffer(memory)
        written = self._call(call, view, ctypes.c_size_t(room))
        del view
        leads = self._group is None or self._group.rank == 0
        if written == 0 and (leads or self._misplaced is not None):
            self._check(_abi.ERROR)
        self._loose = False
        if share and self._group is not None and self._library.diloco_keep_ranks(self._handle) > 1:
            return self._group.share(memory)
        del memory[written:]
        return memory

    # ---- the end ----

    def detach(self) -> None:
        """Lets go of the daemon and of the model. Without finish() before, the daemon counts this as a crash and starts
        the trainer anew."""
        self._end_session()
        if self._dealing is not None:  # whoever draws on is told so
            self._dealing.write(ENDED, 0, _abi.sized(_abi.Dealing))
        # Callbacks and the methods that they call hold each other. Only a collection would end them, and with them the
        # model's memory and the process group, whose threads may not outlive the interpreter.
        self._interrupted = self._before_moves = self._kept_values = None
        self._tensors.release()
        self._tensors = Tensors()
        if self._group is not None:
            self._group.close()

    def _end_session(self) -> None:
        if self._handle and self._loose:
            self._loose = False
            _log.warning(
                "island %s detaches after step %d without finish(): what it has trained since its last contribution is "
                "lost, as no state_dict() was taken since; the daemon takes this for a crash",
                self.name,
                self.run_step,
            )
        self._ending.end()
        if self._handle:
            self._library.diloco_detach(self._handle)
            self._handle = ctypes.c_void_p()
        self._tensors.close()

    def __enter__(self) -> "Island":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.detach()


def schedule(scheduler: Any, island: Island | None = None) -> Schedule:
    """Makes a scheduler of torch.optim.lr_scheduler go by the run's step: its step(), called after island.step(), goes
    to where the run is. Made for as many steps as the run has (island.steps). Where that is changed meanwhile, a
    scheduler of torch keeps what it was made for, until it is made again.

    island: the one that goes by it (default: the one that this process has attached last)
    """
    island = island if island is not None else (_last() if _last is not None else None)
    if island is None:
        raise DilocoError("schedule() before attach(): there is no run yet whose step it could go by")
    return Schedule(own_scheduler(scheduler), island)


def _is_torch(model: Any) -> bool:
    values = model.values() if isinstance(model, dict) else (model,)
    return any(
        type(value).__module__.split(".")[0] == "torch" or hasattr(value, "named_parameters") for value in values
    )


def _attached(model: Any, parts: Any, group: Any, buffers: bool, socket: str) -> tuple[Tensors, Any]:
    """What is to be shared, and the ranks that have it, if there are several."""
    if (model is None) == (parts is None):
        raise DilocoError("attach() takes a model, or parts= and no model")
    if parts is None and not _is_torch(model):
        if not isinstance(model, dict):
            raise DilocoError(f"a {type(model).__name__} is neither a torch module nor a dict of tensors or buffers")
        return Buffers(model), None
    import torch.distributed as dist

    several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    group = (dist.group.WORLD if several else None) if group == "auto" else group
    ranks = None
    if group is not None:
        from ._group import RankGroup

        ranks = RankGroup(group, socket)
    try:
        if parts is not None:
            from ._parts import Parts

            return Parts(parts, ranks), ranks
        from ._torch import Module

        return Module(model, group, buffers, nearest=ranks.nearest if ranks is not None else None), ranks
    except BaseException:
        if ranks is not None:
            ranks.close()
        raise


def attach(
    model: Any = None,
    *,
    parts: Mapping[str, Any] | None = None,
    socket: str | None = None,
    trainer: str = "python",
    wait: float = 60.0,
    ending: float | None = 10.0,
    state: dict[str, Any] | None = None,
    group: Any = "auto",
    buffers: bool = False,
    seed: int | None = None,
) -> Island:
    """Takes part in the run of this machine's island with `model`: a torch.nn.Module, or a dict of names and tensors or
    of names and fp32 buffers; or with `parts`. When it returns the parameters are the run's.

    parts: instead of a model, {name: tensor} of what is whole in this rank, as of a pipeline's stages, and of
        DTensors; or {name: (tensor, shape, column0, columns, first, count)}: what this rank has of each tensor, where
        no DTensor says so, as of Megatron's layers. A tensor of `shape` is a matrix of shape[0] rows, and of as many
        columns as its other dimensions make (of one dimension: of one row); of the columns from column0 on, closely
        packed, this rank's tensor has `count` values from `first`. Names are the model's, the same in all ranks and
        with every number of these; a rank leaves out what it has nothing of. All ranks together have each value: those
        with the same part hold copies, other parts overlap nowhere
    socket: the island's worker socket (default: the environment's DILOCO_SOCKET, which the daemon sets), or
        tcp://HOST:PORT of a diloco-gateway beside its daemon, with DILOCO_SITE_KEY naming the site's key
    wait: seconds to wait for a daemon
    ending: seconds that finish() may take after a SIGTERM, by which step() is False; less than [worker] stop, of 15 s.
        Where the script has a handler of its own nothing is done about it, nor with None.
    state: of Island.state_dict() or {"kept": that of Island.kept()}, from the checkpoint that the model was loaded from
    group: the torch.distributed group of this island's ranks; "auto": all, where there are several; None: this alone
    buffers: share floating-point buffers (as BatchNorm's) as well as parameters
    seed: the generators of random, numpy and torch are seeded by Island.seed(seed), in each rank otherwise, so that
        what they draw from now on is this island's own; None: see to that yourself
    """
    where = socket if socket is not None else os.environ.get("DILOCO_SOCKET", "")
    tensors, ranks = _attached(model, parts, group, buffers, where)
    island = Island(tensors, socket=socket, trainer=trainer, wait=wait, ending=ending, kept=state, group=ranks)
    if seed is not None:
        seed_all(island.seed(seed) + (ranks.rank if ranks is not None else 0))
    return island
