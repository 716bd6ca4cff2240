"""External storage: ranged reads from http(s), S3, files and the other schemes of obstore.

* Reading: ``reader`` (chunks into the store), ``range_request`` (one range of one object), ``ranges`` (from chunks to
  requests), ``assembly`` (from bytes to chunks), ``packed_read`` and ``packed_chunk`` (chunks of small files),
  ``attempts`` (mirrors that are left), ``errors``, ``settings``, ``pieces`` (words of all ways)
* Objects: ``location`` (the address), ``addresses`` (of its host), ``versions`` (which one is read),
  ``file_stream``, ``bucket_region``, ``hub``
* Web servers, without obstore: ``first_request``, ``web_connection``, ``web_stream``, ``whole_objects`` (without
  ranges), ``proxies``, ``redirects``, ``authorities`` (of certificates), ``tls_failures``
* By obstore: ``obstore_clients``, ``obstore_errors``, ``token_services``, ``refusal_documents`` (what S3 and its like
  say)
* When a host is asked: ``admission``, ``host_pace`` and ``asked_pause`` (pauses), ``connection_limit``,
  ``request_rate``, ``mirror_rates``, ``request_watch`` (when a request is made again), ``wrong_bytes``
* Credentials: ``aws_credentials``, ``google_credentials``, ``credential_look`` (with an end), ``credential_places``,
  ``credential_expiry``; ``trial_read`` (whether storage takes them)

Credentials come from this host's environment only. The planner decides what to read.
"""
