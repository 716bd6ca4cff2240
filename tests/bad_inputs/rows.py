"""Rows B1 to B50 as data.

What lives here: what is fed in where, what it is called, and which tests feed it in. What does not: the tests. A code
is an ``E_...`` that an operator or a peer is told, or the name of a counter where silence is the answer; what waits
until it is mended is told in words. A row, or a part of one, that this version has no place for says why in ``absent``.
"""

from __future__ import annotations

from dataclasses import dataclass

_MANIFEST = "tests/gossipd/manifest/test_manifest_bad_input.py"
_PATHS = f"{_MANIFEST}::test_a_path_that_could_leave_the_directory_or_clash_is_refused"
_REGISTER = "tests/gossipd/deployment/test_statement_store.py"
_PACKED = "tests/gossipd/manifest/test_strict_msgpack.py"
_VALUES = "tests/membership/test_values.py"
_SWIM = "tests/membership/test_swim.py"
_SERVER = "tests/gossipd/transfer/test_server_and_client.py"
_HOSTILE = "tests/gossipd/transfer/test_hostile_servers.py"
_ADMISSION = "tests/gossipd/control/test_admission.py"
_TRIGGER = "tests/gossipd/control/test_trigger.py"
_ORDERS = "tests/gossipd/deployment/test_orders.py"
_INBOX = "tests/gossipd/inbox/test_inbox.py"
_STATUS = "tests/gossipd/api/test_routes.py"
_CONFIG = "tests/gossipd/config/test_config.py"
_SOURCES = "tests/gossipd/sources/test_reader.py"
_STORE = "tests/gossipd/store/test_chunk_store.py"
_JOURNAL = "tests/gossipd/store/journal/test_journal.py"
_STEPS = "tests/gossipd/publish/test_step_watch.py"
_LOOKS = "tests/gossipd/publish/test_step_listing.py"
_SHARDS = "tests/gossipd/manifest/test_shards.py"
_PART = "tests/gossipd/parts/test_part.py"
_JOBS = "tests/e2e/test_job_publishing.py"


@dataclass(frozen=True, slots=True)
class Row:
    """``tests`` are node ids of pytest; ``absent`` is a sentence, empty when all of the row applies."""

    number: int
    surface: str
    given: str
    codes: tuple[str, ...]
    tests: tuple[str, ...]
    absent: str = ""


ROWS = (
    Row(1, "manifest", "an absolute path", ("E_PATH_ABSOLUTE",), (_PATHS,)),
    Row(2, "manifest", "'..', '.', empty components", ("E_PATH_COMPONENT",), (_PATHS,)),
    Row(3, "manifest", "NUL, control characters, bidi marks, backslash, colon", ("E_PATH_CHAR",), (_PATHS,)),
    Row(
        4, "manifest", "a path that is not UTF-8 or not NFC", ("E_PATH_UNICODE",),
        (_PATHS, f"{_PACKED}::test_text_that_is_not_utf_8_is_refused"),
    ),
    Row(5, "manifest", "twins by case, by form, by folding", ("E_PATH_COLLISION",), (_PATHS,)),
    Row(6, "manifest", "device names, a trailing dot or space", ("E_PATH_RESERVED",), (_PATHS,)),
    Row(7, "manifest", "components, paths and trees too long", ("E_PATH_LENGTH",), (_PATHS,)),
    Row(8, "manifest", "one path both file and directory", ("E_PATH_PREFIX",), (_PATHS,)),
    Row(
        9, "manifest", "symlink, device, setuid bits", ("E_FILE_TYPE",),
        (f"{_MANIFEST}::test_b9_only_permission_bits_of_regular_files_are_accepted",),
    ),
    Row(
        10, "disk", "a symbolic link planted in the tree", ("E_PATH_SYMLINK",),
        (
            f"{_STORE}::test_a_symlink_planted_in_the_tree_is_never_followed",
            "tests/gossipd/store/disk/test_posix_disk.py::test_nothing_is_opened_outside_or_through_a_link",
        ),
    ),
    Row(11, "manifest", "the store's own names", ("E_PATH_RESERVED",), (_PATHS,)),
    Row(
        12, "manifest", "model, rack and node names that could not be directories", ("E_NAME",),
        (
            f"{_MANIFEST}::test_b12_a_name_that_could_not_be_a_directory_is_refused",
            f"{_MANIFEST}::test_b12_so_is_a_target_that_no_host_could_be",
        ),
    ),
    Row(
        13, "manifest", "unsigned, altered, signed by a stranger",
        ("E_SIG_MISSING", "E_SIG_INVALID", "E_KEY_UNKNOWN"),
        (
            f"{_MANIFEST}::test_b13_an_unsigned_manifest_is_refused",
            f"{_MANIFEST}::test_b13_every_altered_byte_is_found",
            f"{_MANIFEST}::test_b13_a_stranger_s_signature_is_refused_and_named",
            f"{_MANIFEST}::test_b13_the_signature_is_checked_before_anything_is_parsed",
        ),
    ),
    Row(
        14, "trust file", "threshold 0, -1, above the number of keys, a boolean", (), (),
        absent="Trust is a list of publishers' keys in the configuration, any one of which may sign; there is no file "
        "with thresholds until there is a root role.",
    ),
    Row(
        15, "manifest", "one key signing twice", ("E_SIG_THRESHOLD",),
        (f"{_MANIFEST}::test_b15_one_key_signing_twice_is_not_two_keys",),
    ),
    Row(
        16, "manifest", "expired, or from the future", ("E_EXPIRED",),
        (
            f"{_MANIFEST}::test_b16_expiry_is_judged_only_when_asked_for",
            f"{_MANIFEST}::test_b16_a_manifest_from_the_future_is_refused_but_not_for_a_clock_some_minutes_ahead",
            f"{_REGISTER}::test_a_clock_set_back_does_not_revive_what_has_expired",
        ),
        absent="A revoked key: revocation needs the root role; a key that is off the hosts' lists is unknown (B13).",
    ),
    Row(
        17, "manifest", "a version below the trusted one", ("E_ROLLBACK",),
        (f"{_REGISTER}::test_versions_of_a_name_only_go_up",),
    ),
    Row(
        18, "manifest", "the same version with another content", ("E_EQUIVOCATION",),
        (
            f"{_REGISTER}::test_the_same_version_with_other_content_is_an_alarm_that_keeps_both",
            "tests/gossipd/daemon/test_alarms.py::"
            "test_b18_two_contents_of_one_version_are_an_alarm_with_both_names_also_after_a_restart",
        ),
    ),
    Row(
        19, "manifest", "an unknown schema or envelope", ("E_SCHEMA_VERSION",),
        (
            f"{_MANIFEST}::test_b19_an_unknown_schema_is_refused_by_its_number",
            f"{_MANIFEST}::test_b19_so_is_an_unknown_envelope",
        ),
    ),
    Row(
        20, "manifest", "sizes, chunk size and hashes that do not fit", ("E_CHUNK_LAYOUT", "E_HASH_LENGTH"),
        (
            f"{_MANIFEST}::test_b20_a_chunk_size_that_is_no_power_of_two_within_bounds_is_refused",
            f"{_MANIFEST}::test_b20_sizes_and_hashes_must_agree",
            f"{_MANIFEST}::test_b20_a_short_hash_is_refused",
        ),
        absent="A duplicate index: chunks have an order in the format and no index.",
    ),
    Row(
        21, "manifest", "too many files, chunks, bytes", ("E_LIMIT",),
        (
            f"{_MANIFEST}::test_b21_too_many_files_are_refused",
            f"{_MANIFEST}::test_b21_too_many_chunks_too_many_bytes_and_too_large_an_envelope_are_refused",
        ),
    ),
    Row(
        22, "manifest", "no files, only empty files", ("E_EMPTY",),
        (f"{_MANIFEST}::test_b22_an_empty_file_is_fine_but_a_model_has_files_and_bytes",),
    ),
    Row(
        23, "manifest", "a source that must not be read", ("E_SOURCE_FORBIDDEN",),
        (
            f"{_MANIFEST}::test_b23_a_source_with_credentials_or_in_disguise_is_refused",
            f"{_SOURCES}::test_a_source_that_policy_does_not_list_is_never_connected_to",
            f"{_SOURCES}::test_a_name_that_resolves_to_a_forbidden_address_is_never_connected_to",
            "tests/e2e/test_delivery.py::test_a_source_that_is_not_allowed_is_never_read",
        ),
    ),
    Row(
        24, "any MessagePack", "trailing, truncated, 0xc1, deep, long, keys twice or no text, NaN, 2^53, ext",
        ("E_DECODE", "unknown_kind"),
        (
            f"{_PACKED}::test_what_we_would_not_write_is_refused",
            f"{_PACKED}::test_unknown_fields_are_no_hiding_place",
            f"{_MANIFEST}::test_a_field_of_the_wrong_type_is_refused",
            "tests/gossipd/control/test_control_plane.py::test_what_a_peer_must_not_send_is_dropped_and_counted",
        ),
    ),
    Row(
        25, "SWIM", "another cluster, a wrong seal, an old counter, oversize", ("dropped_unsealed", "dropped_replays"),
        (
            f"{_SWIM}::test_strangers_replays_and_noise_are_dropped_and_counted_and_never_answered",
            f"{_VALUES}::test_another_cluster_or_key_cannot_open",
            f"{_VALUES}::test_oversized_and_empty_datagrams_are_dropped_before_any_cipher",
            f"{_VALUES}::test_a_window_never_lets_one_counter_pass_twice",
        ),
    ),
    Row(
        26, "SWIM", "our name with another key", ("E_NAME_CONFLICT", "E_JOIN_REFUSED"),
        (
            f"{_SWIM}::test_a_second_holder_of_a_name_is_refused_and_both_are_told",
            "tests/gossipd/daemon/test_alarms.py::"
            "test_b26_not_being_let_in_is_an_alarm_until_we_see_another_host",
        ),
    ),
    Row(
        27, "chunk request", "unknown manifest, out of range, not held, too many",
        ("E_UNKNOWN_MANIFEST", "E_CHUNK_RANGE", "E_NOT_HELD", "E_BUSY"),
        (
            f"{_SERVER}::test_what_the_server_cannot_give_has_a_code_and_keeps_the_connection",
            f"{_SERVER}::test_a_full_server_says_busy_at_once_and_frees_its_slots",
            "tests/gossipd/transfer/test_slots.py::test_the_hint_follows_how_long_uploads_take",
        ),
    ),
    Row(
        28, "chunk reply", "another length or chunk, unasked, twice, wrong bytes", ("E_BULK_PROTOCOL", "E_DIGEST"),
        (
            f"{_HOSTILE}::test_a_reply_of_another_length_is_the_peers_fault_and_cut",
            f"{_HOSTILE}::test_a_reply_for_another_chunk_is_the_peers_fault",
            f"{_HOSTILE}::test_bytes_that_nobody_asked_for_end_the_connection",
            "tests/contracts/test_chunk_ports.py::test_putting_a_chunk_again_changes_nothing",
            "tests/gossipd/daemon/test_planner_executor.py::"
            "test_bytes_that_do_not_hash_are_their_senders_fault_and_it_is_told",
        ),
    ),
    Row(
        29, "ZeroMQ", "NULL, PLAIN, a stranger's key, HTTP, TLS, a frame of 8 GiB", ("handshake", "unknown_key"),
        (
            f"{_ADMISSION}::test_a_socket_without_encryption_is_cut_off",
            f"{_ADMISSION}::test_a_password_instead_of_a_key_is_cut_off",
            f"{_ADMISSION}::test_an_unknown_key_hears_silence_twice_and_then_a_plain_no",
            f"{_ADMISSION}::test_what_is_not_zeromq_with_curve_is_disconnected",
            "tests/gossipd/daemon/test_control_delegate.py::"
            "test_b29_a_stranger_that_knocks_for_ever_is_written_down_a_few_times",
        ),
    ),
    Row(
        30, "trigger", "malformed, wrong fields, not allowed; a reply is always sent",
        ("E_TRIGGER_FIELD", "E_SCHEMA_VERSION", "E_DECODE", "E_SIG_INVALID", "E_UNKNOWN_MANIFEST"),
        (
            f"{_TRIGGER}::test_a_malformed_request_gets_a_reply_that_names_the_field",
            f"{_TRIGGER}::test_a_statement_about_another_manifest_than_the_one_sent_is_refused",
            f"{_ORDERS}::test_b30_what_may_not_be_ordered_is_refused_with_its_code",
        ),
    ),
    Row(
        31, "trigger", "the same order again", (),
        (
            f"{_ORDERS}::test_b31_the_same_order_again_starts_nothing",
            f"{_ORDERS}::test_b31_an_old_order_played_back_after_a_cancel_changes_nothing",
        ),
    ),
    Row(
        32, "inbox", "empty, partial, directory, FIFO, socket, link, mode 0, too large, another's",
        (
            "E_WATCH_EMPTY", "E_WATCH_TYPE", "E_WATCH_PERMISSION", "E_WATCH_SIZE", "E_WATCH_OWNER",
            "E_WATCH_DIRECTORY",
        ),
        (
            f"{_INBOX}::test_what_is_no_manifest_file_is_refused_once_with_a_stable_code",
            f"{_INBOX}::test_a_file_of_another_user_is_refused",
            f"{_INBOX}::test_a_half_that_stays_a_half_is_refused_in_the_end",
            f"{_INBOX}::test_a_folder_open_to_strangers_is_refused_before_anything_is_read",
        ),
    ),
    Row(
        33, "inbox", "the same file twice, renamed over, thousands; more than a host takes on", ("E_QUEUE_FULL",),
        (
            f"{_INBOX}::test_the_same_file_dropped_twice_is_two_actions_and_two_names",
            f"{_INBOX}::test_a_file_renamed_over_while_it_is_judged_is_judged_itself",
            f"{_INBOX}::test_thousands_of_files_are_single_jobs_and_memory_stays_bounded",
            f"{_INBOX}::test_a_full_daemon_is_asked_again_later",
            f"{_ORDERS}::test_b33_more_than_a_host_takes_on_wait_their_turn",
            f"{_ORDERS}::test_b33_clients_are_refused_more_than_a_host_takes_on",
        ),
    ),
    Row(
        34, "status socket", "garbage, 1 MB line, half a request, unknown page or field",
        ("E_STATUS_REQUEST", "E_USAGE"),
        (
            f"{_STATUS}::test_what_is_no_request_gets_one_json_sentence_and_is_closed",
            f"{_STATUS}::test_a_wrong_page_or_field_is_named",
            f"{_STATUS}::test_half_a_request_is_closed_and_half_a_connection_still_gets_its_answer",
            f"{_STATUS}::test_a_client_that_says_nothing_is_dropped_after_two_seconds",
        ),
    ),
    Row(
        35, "configuration", "unknown, wrong, missing settings and keys; a store on tmpfs or NFS", ("E_CONFIG",),
        (
            f"{_CONFIG}::test_a_wrong_value_is_refused_with_what_would_be_right",
            f"{_CONFIG}::test_settings_that_do_not_fit_together_are_refused",
            f"{_CONFIG}::test_all_key_files_are_checked_at_once",
            "tests/gossipd/config/test_places.py::test_b35_a_store_in_memory_is_refused_with_every_place_named",
            "tests/gossipd/config/test_places.py::test_b35_a_store_on_the_network_is_refused",
            "tests/e2e/test_run.py::test_wrong_settings_are_refused_all_at_once_before_anything_is_bound",
            "tests/e2e/test_run.py::test_a_store_in_memory_is_refused_before_anything_is_bound",
            "tests/e2e/test_run.py::test_an_exposed_secret_key_is_refused",
        ),
    ),
    Row(
        36, "identity", "a certificate of another node", ("E_IDENTITY_MISMATCH",),
        (f"{_HOSTILE}::test_a_server_with_the_wrong_certificate_is_refused",),
        absent="Rack and name in the certificate: certificates are made from the cluster key and hold the node's key; "
        "rack and name are in the member's own signed record until there is enrolment.",
    ),
    Row(
        37, "source", "all of it for a range, another range, encoded, short, long, a page",
        ("E_SOURCE_RANGE", "E_SOURCE_SHORT", "E_SOURCE_LONG", "E_SOURCE_ENCODING", "E_SOURCE_HASH"),
        (
            f"{_SOURCES}::test_a_wrong_answer_to_the_first_look_is_named_and_never_data",
            f"{_SOURCES}::test_a_wrong_answer_to_a_large_read_is_named_and_never_data",
            f"{_SOURCES}::test_a_wrong_answer_to_a_small_read_is_named_and_never_data",
            f"{_SOURCES}::test_an_object_of_another_length_is_not_the_published_one",
        ),
    ),
    Row(
        38, "source", "401, 403, 404, again and again", ("E_SOURCE_AUTH", "E_SOURCE_NOT_FOUND"),
        (
            f"{_SOURCES}::test_a_status_that_stays_is_named_and_asked_a_bounded_number_of_times",
            f"{_SOURCES}::test_a_refusal_is_remembered_so_that_the_planner_cannot_make_a_storm",
        ),
    ),
    Row(
        39, "store", "a journal or store that is newer, or not ours", ("E_STORE_VERSION", "E_STORE_FORMAT"),
        (
            f"{_JOURNAL}::test_a_foreign_file_is_refused",
            f"{_JOURNAL}::test_the_journal_of_another_deployment_is_refused",
            f"{_JOURNAL}::test_a_newer_format_and_a_newer_record_are_refused_by_version",
            f"{_STORE}::test_a_store_of_another_format_is_refused_and_left_alone",
            "tests/gossipd/store/journal/test_recovery.py::test_a_foreign_journal_is_refused_and_left_alone",
        ),
        absent="Another cluster's id: a journal names its deployment and no cluster, because what is believed of a "
        "model hangs on its publisher's signature and not on who served it.",
    ),
    Row(
        40, "command line", "verify finds bad chunks", ("E_VERIFICATION",),
        ("tests/gossipd/cli/test_commands.py::test_verify_exits_with_6_and_names_the_first_ten",),
    ),
    Row(
        41, "training", "a step directory that is still written", (),
        (
            f"{_STEPS}::test_what_is_not_finished_says_why",
            f"{_STEPS}::test_two_looks_a_second_apart_must_agree",
            f"{_JOBS}::test_finished_steps_become_versions_by_themselves_and_unfinished_ones_never",
        ),
    ),
    Row(
        42, "training", "a step directory that is deleted while it is hashed", ("E_SOURCE_CHANGED",),
        (
            f"{_STEPS}::test_a_step_that_is_deleted_while_it_is_hashed_is_told",
            "tests/gossipd/publish/test_shard_hashing.py::test_a_step_that_is_deleted_while_it_is_hashed_is_refused",
            f"{_LOOKS}::test_a_step_that_vanishes_and_one_that_is_no_step_are_left_out",
        ),
    ),
    Row(
        43, "training", "a step that lacks a rank's shard", ("E_SHARDS", "E_SOURCE_CHANGED"),
        (
            f"{_SHARDS}::test_shards_that_make_no_whole_are_refused_by_rank_and_file",
            "tests/gossipd/publish/test_adoption.py::test_a_directory_that_lacks_a_shard_is_refused_by_its_name",
            f"{_LOOKS}::test_a_step_that_lacks_a_shard_of_its_index_has_a_fault",
            f"{_STEPS}::test_a_missing_shard_is_told_once_it_stays_missing",
        ),
    ),
    Row(
        44, "training", "a pickle that runs code when it is loaded", (),
        (
            f"{_LOOKS}::test_a_pickle_in_a_step_is_published_as_bytes_and_never_loaded",
            f"{_LOOKS}::test_no_module_imports_what_runs_code_out_of_data",
        ),
    ),
    Row(
        45, "training", "a step directory, or a file of a step, with two writers", ("E_SHARDS",),
        (
            f"{_STEPS}::test_a_directory_with_two_writers_is_told_of",
            f"{_SHARDS}::test_shards_that_make_no_whole_are_refused_by_rank_and_file",
        ),
    ),
    Row(
        46, "parts", "a want that matches nothing", ("E_WANT",),
        (f"{_PART}::test_a_want_that_matches_nothing_is_refused",),
    ),
    Row(
        47, "parts", "a preset for a model without an index", ("E_NO_INDEX",),
        (
            f"{_PART}::test_tensors_of_a_model_without_an_index_are_refused_with_the_cure",
            "tests/e2e/test_parts.py::test_a_preset_needs_an_index_and_files_do_not",
        ),
    ),
    Row(
        48, "parts", "a manifest whose table of tensors lies", ("E_INDEX",),
        (
            f"{_PART}::test_an_index_whose_header_is_larger_than_any_is_refused",
            "tests/gossipd/parts/test_masked_header.py::test_an_index_that_differs_from_the_header_shows_nothing",
            "tests/e2e/test_parts.py::test_an_index_that_lies_fails_where_it_is_relied_on_until_all_is_wanted",
        ),
    ),
    Row(
        49, "store", "a disk that holds one version and not two", ("E_NO_SPACE",),
        (
            "tests/gossipd/store/journal/test_recovery.py::"
            "test_a_disk_that_holds_one_version_keeps_it_until_it_is_removed_for_the_next",
            f"{_STEPS}::test_a_refused_publication_is_told_once_and_tried_later",
        ),
    ),
    Row(
        50, "training", "a job that publishes faster than the cluster carries", ("superseded",),
        (
            f"{_JOBS}::test_publications_in_a_hurry_keep_the_newest",
            f"{_STEPS}::test_of_steps_that_wait_only_those_that_will_live_are_published_and_the_rest_is_told",
            "tests/gossipd/deployment/test_supersession.py::test_all_of_a_superseded_version_goes_bytes_before_words",
            "tests/gossipd/swarm/test_planner.py::test_the_newest_version_of_a_name_is_fetched_before_all_others",
        ),
    ),
)  # fmt: skip
