"""The filters: one file each, with code, mask over targets, sentence for the user, and whether waiting helps.

`filtering.FILTERS` lists the filters in the order in which they judge a target; there is no other list. A filter which
depends only on fixed properties of targets (name, region, driver, labels) is a `StaticFilter`; the mask of a static
filter is computed once per signature. All other filters are `RoomFilter`s and see the room of the cycle. Filters are
pure and keep no state.
"""
