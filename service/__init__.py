"""The service: verifications over HTTP, kept in a queue that loses no run.

It needs the ``service`` extra. Imports go ``serve -> app -> routes -> worker | queue -> runs -> db``; only ``queue``
imports DBOS, only ``worker`` and ``submission`` call the verifier's engine.
"""
