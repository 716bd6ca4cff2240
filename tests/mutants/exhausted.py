"""Bugs of a daemon that is refused descriptors, threads or file sizes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LOCAL_SERVER = "tests/gossipd/api/test_local_server.py"
_STEP_WATCHES = "tests/gossipd/daemon/test_step_watches.py"

MUTANTS = (
    Mutant(
        "a-question-ends-a-daemon-without-descriptors",
        "The libraries of a local socket are imported for its first client, and what they raise goes up.",
        "gossipd/api/local_server.py",
        "        except (OSError, ImportError, MemoryError) as error:\n            if not is_told:\n",
        "        except ZeroDivisionError as error:\n            if not is_told:\n",
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
)
