"""csv_is_json.py JSON CSV [plan]: exits with 1 and says where where the CSV holds other values than the JSON, or holds
them under other names. A row is an object of the JSON, a column the path of a value; of plans a row is a candidate,
searched or left out, with the plan's own values under "plan."."""
import csv
import json
import sys


def flat(value, path=""):
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        return {path: value}
    values = {}
    for key, item in items:
        values.update(flat(item, f"{path}.{key}" if path else str(key)))
    return values


def rows_of_plan(plan):
    own = {key: value for key, value in plan.items() if key not in ("candidates", "left_out")}
    brief = {key: value for key, value in own.items() if key not in ("recommendation", "frontier")}
    rows = [dict(item) for item in plan["candidates"] + plan["left_out"]]
    for number, row in enumerate(rows):
        row["plan"] = brief if number else own
    return rows


def same(cell, value):
    if value is None:
        return cell == ""
    if isinstance(value, bool):
        return cell == str(value).lower()
    if isinstance(value, (int, float)):
        return cell != "" and float(cell) == value
    return cell == value


with open(sys.argv[1], encoding="utf-8") as file:
    answer = json.load(file)
answer = answer if isinstance(answer, list) else [answer]
if sys.argv[3:] == ["plan"]:
    answer = [row for plan in answer for row in rows_of_plan(plan)]
with open(sys.argv[2], encoding="utf-8", newline="") as file:
    table = list(csv.DictReader(file))
if len(answer) != len(table):
    sys.exit(f"{len(table)} rows of {len(answer)} objects")
keys = {key for item in answer for key in flat(item)}
if keys != set(table[0]):
    sys.exit(f"only one has: {sorted(keys ^ set(table[0]))}")
for number, (item, row) in enumerate(zip(answer, table)):
    values = flat(item)
    for key in keys:
        if not same(row[key], values.get(key)):
            sys.exit(f"row {number + 1}, {key}: {row[key]!r} in CSV, {values.get(key)!r} in JSON")
