"""Bugs of the store: the order of writes, what is believed after a crash, what a disk refuses."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_STORE = "tests/gossipd/store"
_CRASHES = f"{_STORE}/test_crashes.py"
_WARMING = f"{_STORE}/models/test_warming.py"

MUTANTS = (
    Mutant(
        "current-falls-back-on-what-was-rolled-back",
        "When the version that a roll back chose goes, `current` leads to the one that was rolled back.",
        "gossipd/store/models/version_choice.py",
        "        good = [one for one in shown if one not in self.avoided]\n",
        "        good = [one for one in shown if one not in self.avoided or one == shown[-1]]\n",
        ("tests/gossipd/store/models/test_current_link.py",),
    ),
    Mutant(
        "untrust-ends-an-operators-roll-back",
        "`untrust` and `--undo` leave `current` on the version from which an operator had rolled this host back.",
        "gossipd/store/models/current_link.py",
        "        choice = replace(said, avoided=versions.intersection(shown))\n",
        "        choice = VersionChoice(avoided=versions.intersection(shown))\n",
        ("tests/gossipd/store/models/test_current_link.py",),
    ),
    Mutant(
        "a-refused-roll-back-forgets-what-is-avoided",
        "A roll back that the disk refused leaves a note without the versions that the cluster rolled back.",
        "gossipd/store/models/current_link.py",
        "                self._keep(before)\n",
        "                self._keep(VersionChoice(before.chosen, before.above))\n",
        ("tests/gossipd/store/test_second_attempts.py",),
    ),
    Mutant(
        "a-roll-back-leads-to-zeros",
        "A roll back leads users to a version whose removed files were made again and are not filled.",
        "gossipd/store/models/models.py",
        "if not one.is_whole)\n",
        "if one.is_closed)\n",
        ("tests/gossipd/store/models/test_current_link.py",),
    ),
    Mutant(
        "a-removed-part-comes-back-without-its-header",
        "A removed file of a part comes again with zeros in the place of its header.",
        "gossipd/store/chunk_store.py",
        "        mend_beginnings(self._context, replica, chunk)\n",
        "",
        ("tests/gossipd/store/models/test_part_note.py",),
    ),
    Mutant(
        "a-start-forgets-the-header-of-a-removed-part",
        "A file of a part that was removed while the daemon was down has zeros in the place of its header.",
        "gossipd/store/journal/recovery.py",
        "        show_again(context, replica, replica.part.kept_bytes)\n",
        "        pass\n",
        ("tests/gossipd/store/models/test_part_note.py",),
    ),
    Mutant(
        "a-removed-index-of-a-part-stays-removed",
        "`verify` finds all chunks of a part, and not that the index that users see is gone.",
        "gossipd/store/models/repair.py",
        "            mend_tree(context, replica)\n    except",
        "            pass\n    except",
        ("tests/gossipd/store/models/test_part_note.py",),
    ),
    Mutant(
        "a-roll-back-leaves-parts-where-they-are",
        "A host that holds parts goes on with the version that was rolled back.",
        "gossipd/store/models/current_link.py",
        "    return CurrentLink(disk, name), CurrentLink(disk, name, part=True)\n",
        "    return CurrentLink(disk, name), CurrentLink(disk, name)\n",
        ("tests/gossipd/store/models/test_part_note.py",),
    ),
    Mutant(
        "verify-calls-missing-chunks-bad",
        "`verify` of an incomplete model says that its disk is damaged.",
        "gossipd/store/models/scrub.py",
        "            if chunk not in held:\n",
        "            if chunk > replica.manifest.chunk_count:\n",
        ("tests/gossipd/store/models/test_scrub.py",),
    ),
    Mutant(
        "freeing-a-part-frees-nothing-of-its-files",
        "`want --clear --free` says that it deletes, and files that are wanted in part keep their blocks.",
        "gossipd/store/models/models.py",
        "            is_freed = frees or not replica.is_published\n",
        "            is_freed = False\n",
        ("tests/gossipd/store/models/test_holes.py",),
    ),
    Mutant(
        "freeing-a-part-zeroes-what-a-job-reads",
        "A job that has a file open finds zeros where it read tensors, when a part is freed.",
        "gossipd/store/models/holes.py",
        "                if not disk.is_open_elsewhere(descriptor):\n",
        "                if disk.kind(path) is FileKind.FILE:\n",
        ("tests/gossipd/store/models/test_holes.py",),
    ),
    Mutant(
        "a-model-deleted-by-hand-is-told-nowhere",
        "Nobody hears of a published model whose files somebody removed, until its chunks are read.",
        "gossipd/store/models/removed_files.py",
        "            if mark is not None and mark == seen.mark and not seen.lacks:\n",
        "            if mark is not None:\n",
        ("tests/gossipd/store/models/test_removed_files.py",),
    ),
    Mutant(
        "a-look-never-reaches-the-last-models",
        "With many directories each look begins with the same models.",
        "gossipd/store/models/removed_files.py",
        "        first = ids.index(self._last) + 1 if self._last in ids else 0\n",
        "        first = 0\n",
        ("tests/gossipd/store/models/test_removed_files.py",),
    ),
    Mutant(
        "takes-a-model-without-its-manifest-for-another",
        "A tree is not known as the model's where only the copy of its manifest is gone.",
        "gossipd/store/journal/recovery.py",
        "return said, is_known or said.header is not None",
        "return said, is_known",
        (f"{_STORE}/test_chunk_store.py",),
    ),
    Mutant(
        "keeps-a-rotted-manifest-in-the-store",
        "The copy of a manifest beside the chunks is not compared with the one that was verified.",
        "gossipd/store/journal/recovery.py",
        "        if read_file(context.disk, path, bytes_max=len(envelope)) == envelope:\n",
        "        if read_file(context.disk, path, bytes_max=1 << 30) is not None:\n",
        (f"{_STORE}/test_chunk_store.py",),
    ),
    Mutant(
        "takes-a-kept-manifest-whose-signature-has-rotted",
        "Of two copies of a manifest the content is compared, and not whether a known key has signed it.",
        "gossipd/daemon/deployment_executor.py",
        "    except ManifestError:\n        return 1\n",
        "    except ManifestError:\n        return 2\n",
        ("tests/gossipd/daemon/test_deployment_driver.py",),
    ),
    Mutant(
        "waits-for-the-other-end-of-a-pipe",
        "A pipe in the place of a file of the store is opened as a file is, and holds the daemon for ever.",
        "gossipd/store/disk/posix_disk.py",
        "flags | os.O_NONBLOCK | os.O_NOCTTY, mode)",
        "flags | os.O_NONBLOCK | os.O_NOCTTY, mode)\n            return descriptor",
        (f"{_STORE}/disk/test_posix_disk.py",),
    ),
    Mutant(
        "a-link-among-the-books-hides-every-model",
        "A symbolic link in the place of one model's books ends the start of the daemon.",
        "gossipd/store/models/catalogue.py",
        "        if error.errno != errno.ELOOP:\n",
        "        if True:\n",
        (f"{_STORE}/test_chunk_store.py",),
    ),
    Mutant(
        "warms-while-others-wait-for-memory",
        "Versions are read into memory though a task of the host waits for memory.",
        "gossipd/store/models/warming.py",
        "        if room.waits_percent > _WAITS_PERCENT_MAX:\n",
        "        if False:\n",
        (_WARMING,),
    ),
    Mutant(
        "warms-versions-that-are-not-current",
        "Every version on the disk is read into memory.",
        "gossipd/store/models/warming.py",
        "if current_link.is_current(disk, one.manifest.name, one.manifest.version)",
        "if current_link.is_current is not None",
        (_WARMING,),
    ),
    Mutant(
        "warms-no-page-that-was-on-its-way-out",
        "A version counts as read, and lacks in memory what its arrival had left there for a moment.",
        "gossipd/store/models/warming.py",
        "            self._settle(one, reading, cached[one])\n",
        "            pass\n",
        (_WARMING,),
    ),
    Mutant(
        "warms-what-is-in-memory",
        "What the page cache holds is read again, and takes its part of the pace.",
        "gossipd/store/models/warming.py",
        "            if disk.cached(descriptor, begin, end - begin) == end - begin:\n",
        "            if False:\n",
        (_WARMING,),
    ),
    Mutant(
        "a-missing-page-hides-in-an-unaligned-range",
        "A range that lies in one page more than it is long counts as in memory where one of them is not.",
        "gossipd/store/models/warming.py",
        "        begin = offset - offset % PAGESIZE ",
        "        begin = offset ",
        (_WARMING,),
    ),
    Mutant(
        "takes-names-that-its-disk-cannot-hold",
        "A store whose file system folds case takes a model whose names differ only in case.",
        "gossipd/store/journal/recovery.py",
        "    if manifest.case_matters and folds_case(context.disk):\n",
        "    if False:\n",
        (f"{_STORE}/test_chunk_store.py",),
    ),
    Mutant(
        "skips-the-hash-check",
        "The store writes whatever has the right length.",
        "gossipd/store/chunk_store.py",
        "if len(body) != manifest.chunk_length(chunk) or blake3(body).digest() != manifest.digest(chunk):",
        "if len(body) != manifest.chunk_length(chunk):",
        ("tests/contracts/test_chunk_ports.py",),
    ),
    Mutant(
        "skips-the-sync-of-data",
        "A window is claimed in the journal without its files having been synced.",
        "gossipd/store/journal/windows.py",
        "            context.disk.sync_data(handle.descriptor)\n",
        "            pass\n",
        (_CRASHES,),
    ),
    Mutant(
        "believes-the-claim-before-its-sync",
        "A COMMIT record counts as durable though the journal was not synced after it.",
        "gossipd/store/journal/windows.py",
        """    try:
        replica.ledger.sync()
    except OSError as error:
        context.tracker.sync_failed(error, context.clock.monotonic(), chunk_count=0)
        _mark_durable(replica, chunks)
""",
        """    try:
        pass
    except OSError as error:
        context.tracker.sync_failed(error, context.clock.monotonic(), chunk_count=0)
        _mark_durable(replica, chunks)
""",
        (_CRASHES,),
    ),
    Mutant(
        "a-disk-that-refuses-is-asked-at-every-look",
        "A window that the disk refuses to end is tried again at every look at what else is due.",
        "gossipd/store/models/upkeep.py",
        "                    replica.commit_at_s = self._context.clock.monotonic() + _COMMIT_RETRY_S\n",
        "                    pass\n",
        ("tests/gossipd/store/disk/test_condition.py",),
    ),
    Mutant(
        "writes-without-naming-the-chunk-first",
        "No WRITING record goes before the bytes, so a killed host does not know what to look at.",
        "gossipd/store/journal/windows.py",
        "        replica.ledger.append_writing(chunk)\n",
        "",
        (_CRASHES,),
    ),
    Mutant(
        "renames-before-syncing",
        "A small file gets its name before its bytes have reached the disk.",
        "gossipd/store/disk/disk.py",
        """        disk.sync_data(descriptor)
    finally:
        disk.close(descriptor)
    disk.rename(unfinished, path, replace=True)
""",
        """        disk.rename(unfinished, path, replace=True)
        disk.sync_data(descriptor)
    finally:
        disk.close(descriptor)
""",
        (_CRASHES,),
    ),
    Mutant(
        "renames-the-journal-before-syncing",
        "A journal that is started again takes the old one's place before it is on the disk.",
        "gossipd/store/journal/ledger.py",
        """            self._disk.sync_data(descriptor)
            self._disk.rename(path + ".part", path, replace=True)
""",
        """            self._disk.rename(path + ".part", path, replace=True)
            self._disk.sync_data(descriptor)
""",
        (_CRASHES,),
    ),
    Mutant(
        "publishes-without-syncing-the-tree",
        "The tree of a whole model is renamed to its place while names in it are not on the disk.",
        "gossipd/store/models/publishing.py",
        "            _sync_tree(context, replica)\n",
        "",
        (_CRASHES, "tests/gossipd/store/journal/test_recovery.py", f"{_STORE}/test_removal.py"),
    ),
    Mutant(
        "forgets-to-sync-the-directory",
        "A published version's name is not made durable.",
        "gossipd/store/models/publishing.py",
        """        context.disk.sync_directory(parent(place))
        with suppress(FileNotFoundError):  # it""",
        "        with suppress(FileNotFoundError):  # it",
        (_CRASHES, "tests/gossipd/store/journal/test_recovery.py"),
    ),
    Mutant(
        "claims-what-has-no-durable-name",
        "The journal is started while the names of the model's files may be in memory only.",
        "gossipd/store/journal/claims.py",
        """        if not replica.has_durable_names:
            sync_names(context, replica)
        replica.ledger""",
        "        replica.ledger",
        (f"{_STORE}/models/test_name_syncs.py",),
    ),
    Mutant(
        "makes-a-file-again-that-is-still-claimed",
        "A start makes a missing file at its full size before the journal has lost its claims on it.",
        "gossipd/store/journal/recovery.py",
        "        start_journal(context, replica)\n        replica.busy.clear()\n",
        "        replica.busy.clear()\n",
        (f"{_STORE}/models/test_name_syncs.py",),
    ),
    Mutant(
        "writes-behind-a-cut",
        "A file that was cut short gets its length back from a write behind the cut, and zeros count as verified.",
        "gossipd/store/journal/windows.py",
        "    if context.disk.size(handle.descriptor) < replica.placement.size(file_index):\n",
        "    if context.disk.size(handle.descriptor) < 0:\n",
        (f"{_STORE}/test_second_attempts.py",),
    ),
    Mutant(
        "claims-a-write-whose-loss-another-heard-of",
        "A failed sync of the whole file system is everybody's, and only who asked takes it to heart.",
        "gossipd/store/disk/whole_sync.py",
        "                self.failures += 1\n",
        "",
        (f"{_STORE}/test_second_attempts.py",),
    ),
    Mutant(
        "ignores-a-short-write",
        "What the kernel left unwritten is not written.",
        "gossipd/store/disk/disk.py",
        "        data = data[written:]\n",
        "        data = data[len(data) :]\n",
        (f"{_STORE}/test_faults.py",),
    ),
    Mutant(
        "journal-without-a-crc-check",
        "A record of the journal is believed whatever its check says.",
        "gossipd/store/journal/journal.py",
        "        if computed != _CHECK.unpack_from(body, end)[0]:\n            break\n",
        "",
        ("tests/gossipd/store/journal/test_journal.py",),
    ),
    Mutant(
        "retries-a-failed-sync",
        "A sync that failed is tried again and believed the second time.",
        "gossipd/store/journal/windows.py",
        "            context.disk.sync_data(handle.descriptor)\n",
        """            try:
                context.disk.sync_data(handle.descriptor)
            except OSError:
                context.disk.sync_data(handle.descriptor)
""",
        (f"{_STORE}/test_faults.py",),
    ),
    Mutant(
        "ignores-a-failed-sync-of-the-journal",
        "A claim is believed though the sync of the journal failed.",
        "gossipd/store/journal/ledger.py",
        "        except OSError:\n            self.broken = True\n            raise\n",
        "        except OSError:\n            return\n",
        ("tests/gossipd/store/journal/test_recovery.py",),
    ),
    Mutant(
        "publishes-before-all-is-verified",
        "A model is put in its place while chunks of it are missing.",
        "gossipd/store/models/publishing.py",
        "        if not replica.is_whole:\n",
        "        if not replica.held.count:\n",
        (f"{_STORE}/test_chunk_store.py",),
    ),
    Mutant(
        "serves-what-is-not-verified",
        "A chunk is sent to each that asks, held or not.",
        "gossipd/store/models/reading.py",
        """    if chunk not in replica.held:
        raise NotHeldError(f"chunk {chunk} is not held")
""",
        "",
        ("tests/contracts/test_chunk_ports.py",),
    ),
    Mutant(
        "keeps-a-rotten-chunk",
        "A chunk that reads back wrong is reported and goes on being held.",
        "gossipd/store/models/scrub.py",
        "        take_claims_back(context, replica, [chunk])\n",
        "        pass\n",
        ("tests/gossipd/store/models/test_scrub.py",),
    ),
    Mutant(
        "forgets-a-drop",
        "The journal is not told that a chunk is no longer right.",
        "gossipd/store/journal/claims.py",
        "                replica.ledger.append_drop(chunks)\n",
        "                pass\n",
        ("tests/gossipd/store/models/test_scrub.py",),
    ),
    Mutant(
        "refetches-what-the-journal-claims",
        "A restart begins with nothing, whatever the journal says.",
        "gossipd/store/journal/recovery.py",
        "    replica.held = Bits.of_raw(replica.manifest.chunk_count, said.held.raw)\n",
        "",
        ("tests/gossipd/store/journal/test_recovery.py",),
    ),
    Mutant(
        "believes-suspects-without-hashing",
        "What was being written at the crash counts as verified.",
        "gossipd/store/journal/recovery.py",
        "    return blake3(body, max_threads=blake3.AUTO).digest() == replica.manifest.digest(chunk)\n",
        "    return True\n",
        (_CRASHES,),
    ),
    Mutant(
        "a-full-disk-is-for-ever",
        "A disk that refused once is never tried again.",
        "gossipd/store/disk/condition.py",
        "            self.probe_at = now + self._interval_s if waits else None\n",
        "            self.probe_at = None\n",
        ("tests/gossipd/store/disk/test_condition.py",),
    ),
    Mutant(
        "writes-on-to-a-disk-that-refuses",
        "While the disk refuses, every chunk is tried all the same.",
        "gossipd/store/disk/condition.py",
        "        if condition.health is not StoreHealth.OK:\n            raise",
        "        if condition.health is None:\n            raise",
        ("tests/gossipd/store/disk/test_condition.py",),
    ),
    Mutant(
        "takes-the-reserve",
        "The space that the rest of the host needs is used up.",
        "gossipd/store/journal/recovery.py",
        "    if need > 0 and need + reserve + promised_bytes > space.free_bytes:\n",
        "    if need > 0 and need + promised_bytes > space.free_bytes:\n",
        (f"{_STORE}/test_chunk_store.py", "tests/gossipd/store/journal/test_recovery.py"),
    ),
    Mutant(
        "follows-a-planted-symlink",
        "A path beneath the store may lead through a symbolic link.",
        "gossipd/store/disk/syscalls.py",
        "_RESOLVE = 0x02 | 0x04 | 0x08",
        "_RESOLVE = 0x02 | 0x08",
        ("tests/gossipd/store/disk/test_posix_disk.py",),
    ),
    Mutant(
        "a-dead-host-keeps-a-copy-for-its-rack",
        "The last copies in a rack are evicted, because a host that is gone counts as one that has it.",
        "gossipd/daemon/rack_copies.py",
        "        for node in self.directory.live():\n",
        "        for node in self.table.everybody(key):\n",
        ("tests/gossipd/daemon/test_rack_copies.py",),
    ),
    Mutant(
        "a-liar-keeps-the-racks-copy",
        "A host evicts its copy because another, which has none, says that it keeps one.",
        "gossipd/daemon/watermarks.py",
        "            is_spare = await self._copies.is_spare(one.deployment)\n",
        "            is_spare = True\n",
        ("tests/gossipd/daemon/test_watermarks.py",),
    ),
    Mutant(
        "any-bytes-show-a-copy",
        "A host that sends anything at all when it is asked for a chunk counts as one that has the version.",
        "gossipd/daemon/copy_checks.py",
        "            if blake3(incoming.view).digest() != manifest.digest(chunk):\n",
        "            if not incoming.view:\n",
        ("tests/gossipd/daemon/test_copy_checks.py",),
    ),
    Mutant(
        "a-liar-hides-a-lost-copy",
        "A rack that has lost its copies has none made again, because one host says that it has all of them.",
        "gossipd/daemon/rack_copies.py",
        "        copies = sum(not self.proofs.has_failed(deployment, node) for node in whole)\n",
        "        copies = len(whole)\n",
        ("tests/gossipd/daemon/test_rack_copies.py",),
    ),
    Mutant(
        "a-copy-is-on-its-way-for-ever",
        "A rack that has lost a copy has none made again, because one host says for ever that it fetches one.",
        "gossipd/deployment/copy_proofs.py",
        "        return now - since_s < PROMISED_S\n",
        "        return True\n",
        ("tests/gossipd/deployment/test_copy_proofs.py",),
    ),
    Mutant(
        "every-host-makes-the-lost-copy",
        "When one copy in a rack is lost, all hosts that had evicted the version fetch it at once.",
        "gossipd/deployment/lost_copies.py",
        "after_s * (1 + self._hosts_before(one, views[one]) // missing[one])",
        "after_s",
        ("tests/gossipd/deployment/test_lost_copies.py",),
    ),
)
