"""The plain-Python part: settings of a biz, shards, ids, extraction. No Django in here."""
