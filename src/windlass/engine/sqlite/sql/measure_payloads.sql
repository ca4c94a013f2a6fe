-- How many bytes the payloads of jobs have, as an array; the jobs are given as one of rows.
SELECT json_group_array(length(payloads.body)) FROM json_each(?1) AS given CROSS JOIN payloads ON payloads.job = given.value
