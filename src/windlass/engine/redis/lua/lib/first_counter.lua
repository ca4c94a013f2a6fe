-- Name the counter of queue and task of the first jobs, before `meta` reads its fields.
--@include clock
first_counter = ARGV[7]
