"""Bugs of a daemon that is refused descriptors, threads or file sizes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_CONDITION = "tests/gossipd/store/disk/test_condition.py"
_DOCTOR = "tests/gossipd/cli/test_doctor.py"
_LIMITS_WATCH = "tests/gossipd/daemon/test_limits_watch.py"
_LOCAL_SERVER = "tests/gossipd/api/test_local_server.py"
_REMOVED_FILES = "tests/gossipd/store/models/test_removed_files.py"
_STEP_WATCHES = "tests/gossipd/daemon/test_step_watches.py"

MUTANTS = (
    Mutant(
        "a-question-ends-a-daemon-without-descriptors",
        "The libraries of a local socket are imported for its first client, and what they raise goes up.",
        "gossipd/api/local_server.py",
        "        except (OSError, ImportError, MemoryError) as error:\n",
        "        except ZeroDivisionError as error:\n",
        (_LOCAL_SERVER,),
    ),
    Mutant(
        "a-reload-ends-a-daemon-without-descriptors",
        "What lists steps is imported for the first table that is watched.",
        "gossipd/daemon/step_watches.py",
        "                except (OSError, ImportError, MemoryError) as error:\n",
        "                except ZeroDivisionError as error:\n",
        (_STEP_WATCHES,),
    ),
    Mutant(
        "a-library-that-cannot-be-loaded-is-a-bug",
        "A read whose library cannot be imported stops the daemon.",
        "gossipd/sources/pieces.py",
        "    except (OSError, ImportError, MemoryError) as error:  #",
        "    except ZeroDivisionError as error:  #",
        ("tests/gossipd/sources/test_absurd_answers.py",),
    ),
    Mutant(
        "files-that-cannot-be-opened-were-removed",
        "A host without a free descriptor says that others removed its models, and leads no job to them.",
        "gossipd/store/models/removed_files.py",
        "            if error.errno not in _GONE:\n                raise\n",
        "",
        (_REMOVED_FILES,),
    ),
    Mutant(
        "an-alarm-of-refused-threads-ends-at-the-next-look",
        "The operator sees for a moment that the system refuses threads, or never.",
        "gossipd/daemon/limits_watch.py",
        "        elif now - self._refused_s.get(code, math.inf) >= REFUSED_S:\n",
        "        elif code in self._refused_s:\n",
        (_LIMITS_WATCH,),
    ),
    Mutant(
        "a-refused-thread-of-a-connection-counts-nowhere",
        "Threads that move bytes are refused for an hour, and no alarm says so.",
        "gossipd/runtime/named_thread.py",
        "            thread_refused()\n",
        "",
        ("tests/gossipd/runtime/test_named_thread.py",),
    ),
    Mutant(
        "a-pool-without-a-thread-takes-work",
        "Where the system refuses a pool its first thread, the daemon runs, and never fetches.",
        "gossipd/runtime/worker_pool.py",
        "        if not self._start_thread():\n",
        "        if self._start_thread() is None:\n",
        ("tests/gossipd/runtime/test_worker_pool.py",),
    ),
    Mutant(
        "a-server-without-its-thread-cannot-be-closed",
        "The end of a start that was refused a thread is a traceback: it waits for a thread that never began.",
        "gossipd/transfer/listener.py",
        "            if self._accepting.is_alive():",
        "            if not self._accepting.is_alive():",
        ("tests/gossipd/transfer/test_exhaustion.py",),
    ),
    Mutant(
        "doctor-looks-at-its-own-limits",
        "An operator's shell has 20,000 descriptors, the daemon 64, and all is well.",
        "gossipd/cli/host_readings.py",
        '    process = process_of_listener(daemon_socket) or "self"\n',
        '    process = "self"\n',
        ("tests/gossipd/cli/test_daemon_environment.py",),
    ),
    Mutant(
        "a-disk-that-hangs-is-called-unfit",
        "Of directories that do not answer doctor says to move them to a local disk.",
        "gossipd/cli/disk_readings.py",
        '            return {"answers_problem": f"',
        '            return {"places_problem": f"',
        (_DOCTOR,),
    ),
    Mutant(
        "doctor-waits-for-manifests-on-a-disk-that-hangs",
        "Doctor has found that its host's disk hangs, reads the manifests there, and tells nothing.",
        "gossipd/cli/storage_readings.py",
        "read_apart(read).get(",
        "read().get(",
        ("tests/gossipd/cli/test_storage_readings.py",),
    ),
    Mutant(
        "doctor-reads-on-where-nothing-answers",
        "Each reading of a disk that hangs costs ten more seconds.",
        "gossipd/cli/host_readings.py",
        "has_disk=not readings.answers_problem",
        "has_disk=True",
        (_DOCTOR,),
    ),
    Mutant(
        "doctor-waits-for-a-configuration-on-a-disk-that-hangs",
        "Where the daemon's own directory hangs, doctor is silent for ever.",
        "gossipd/cli/doctor.py",
        "    if words := why_silent(config_file):\n",
        "    if (words := why_silent(config_file)) is None:\n",
        (_DOCTOR,),
    ),
    Mutant(
        "a-start-without-threads-aborts",
        "Nothing is asked before libzmq is, which ends the process with SIGABRT.",
        "gossipd/daemon/start_limits.py",
        "        if room.limit - room.used < THREADS_LEAST:\n",
        "        if room.limit < room.used:\n",
        ("tests/gossipd/daemon/test_start_limits.py",),
    ),
    Mutant(
        "a-start-without-descriptors-aborts",
        "Nothing is asked before libzmq is, which ends the process with SIGABRT.",
        "gossipd/daemon/main.py",
        "        check_limits(descriptors_max(), thread_rooms())\n",
        "",
        ("tests/gossipd/daemon/test_main.py",),
    ),
    Mutant(
        "an-error-of-libzmq-is-a-traceback",
        "A start that libzmq refuses ends with frames in place of a sentence.",
        "gossipd/daemon/main.py",
        "    except* (GossipdError, OSError, ZMQError) as group:\n",
        "    except* (GossipdError, OSError) as group:\n",
        ("tests/gossipd/daemon/test_main.py",),
    ),
    Mutant(
        "a-limit-of-file-sizes-stops-the-store",
        "A model with a file over the limit has the others wait, and the store's state changes every second.",
        "gossipd/store/disk/condition.py",
        "    if error.errno != errno.EFBIG:\n",
        "    if error.errno:\n",
        (_CONDITION,),
    ),
    Mutant(
        "a-limit-of-file-sizes-is-probed-at-a-file-s-beginning",
        "The probe is small enough, so the store is well until the next chunk is written.",
        "gossipd/store/models/upkeep.py",
        "memoryview(bytes(PROBE_BYTES)), max(0, offset - PROBE_BYTES))",
        "memoryview(bytes(PROBE_BYTES)), 0)",
        (_CONDITION,),
    ),
    Mutant(
        "doctor-calls-a-store-well-that-refuses-a-model",
        "A model whose file is over the limit waits, and the doctor says that the store takes what is deployed.",
        "gossipd/diagnosis/checks.py",
        '    return _problem(store["detail"])  # a model waits',
        '    return _problem("")  # a model waits',
        ("tests/gossipd/diagnosis/test_checks.py",),
    ),
    Mutant(
        "doctor-does-not-look-at-the-inbox",
        "Manifests wait in an inbox that does not work, and the doctor says that all is well.",
        "gossipd/diagnosis/checks.py",
        '{waiting}" if inbox["trouble"] else "")',
        '{waiting}" if None else "")',
        ("tests/gossipd/diagnosis/test_checks.py",),
    ),
    Mutant(
        "a-lack-of-descriptors-fills-the-log",
        "While descriptors are short the status socket writes ten lines a second.",
        "gossipd/api/request_guard.py",
        "            self._told_s = now\n",
        "",
        ("tests/gossipd/api/test_routes.py",),
    ),
)
