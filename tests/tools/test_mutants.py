"""`tools/mutants.py` changes code and leaves comments as they are."""

from tools.mutants import lua_changes

SCRIPT = """#!lua name=1
-- If this is true, add 1 to the number of groups == size.
local size = ARGV[1]  -- 1 if true, and 2 or more otherwise
if size == 3 then  -- not > 3
  redis.call('DEL', KEYS[1])  -- at most 1
end
"""


def test_mutants_of_a_script_change_no_comment() -> None:
    changed = {SCRIPT[start:end]: text for start, end, text in lua_changes(SCRIPT)}
    assert changed == {"1": "2", "==": "~=", "3": "4", "  redis.call('DEL', KEYS[1])": "-- deleted"}
