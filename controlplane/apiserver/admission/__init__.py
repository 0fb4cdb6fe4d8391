"""Admission: what may enter `config`, with defaults filled in and every name it refers to known.

Pure: objects and a Catalogue of what exists in, an admitted object or a refusal that names the field out. No I/O, no
clock. Validation happens here and nowhere else.
"""
