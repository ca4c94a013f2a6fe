-- Write the settings of queues back.
UPDATE meta SET queues = ?
