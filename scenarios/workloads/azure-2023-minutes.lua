-- Requests in each whole minute of Azure's conversation trace of 16 November 2023 (../traces/README.md: source and
-- licence), as a profile for loads that are made. Counted by
--
--   xz -dc scenarios/traces/azure-2023-conversation.csv.xz | awk -F'[:, ]' 'NR > 1 { print $2 * 60 + $3 }' | uniq -c
local counts = {
  236, 265, 347, 328, 321, 256, 267, 289, 308, 294, 305, 304, 337, 326, 277, 274, 290, 315, 355, 339, 352,
  360, 406, 406, 394, 380, 433, 502, 467, 435, 478, 489, 462, 379, 409, 455, 432, 320, 314, 321, 344, 353,
  328, 333, 348, 375, 299, 246, 236, 248, 273, 268, 272, 244, 242, 258, 243, 201,
}

local profile = {}
for i, requests in ipairs(counts) do
  profile[i] = { minutes(1), requests / 100 }
end
return profile
