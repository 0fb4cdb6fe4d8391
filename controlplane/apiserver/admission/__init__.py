"""Admission: the rules of objects under `config`, their defaults, and the existence of every name they refer to.

The modules of rules are pure: objects and a Catalogue of existing objects in, an admitted object or a refusal with the
path of its field out. `admit_caught_up` runs rules on the cache, `admit_order` remembers admitted orders,
`order_quotas` bounds their number. Validation happens here and nowhere else.
"""
