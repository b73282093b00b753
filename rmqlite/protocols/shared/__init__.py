"""Bytes that several protocols share: limits, codecs, errors, signatures, files of secrets."""
