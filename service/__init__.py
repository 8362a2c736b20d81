"""The service: verifications over HTTP, kept in a queue that loses nothing.

Needs the ``service`` extra. Imports go ``serve -> app -> routes -> worker | queue -> runs -> db``; only ``queue``
knows DBOS, only ``worker`` and ``submission`` call the verifier's engine.
"""
