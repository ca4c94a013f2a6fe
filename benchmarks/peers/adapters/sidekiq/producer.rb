# The enqueue calls of Sidekiq, by the protocol of protocol.py.

require "json"
require_relative "tasks"

CHUNK = 1000
JOBS = {
  "noop" => Noop, "three" => Three, "three_long" => ThreeLong, "io" => Io,
  "start_time" => StartTime, "second" => Second
}.freeze

def arguments(task, number)
  case task
  when "start_time" then []
  when "three" then [number, "ada@example.com", 12.5]
  when "three_long" then [number, "one line of a letter " * 5, 12.5]
  else [number]
  end
end

def single(task, count)
  job = JOBS.fetch(task)
  count.times { |number| job.perform_async(*arguments(task, number)) }
end

def bulk(task, count)
  job = JOBS.fetch(task)
  (0...count).each_slice(CHUNK) do |numbers|
    job.perform_bulk(numbers.map { |number| arguments(task, number) })
  end
end

def now_ns = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)

def answer(reply)
  puts JSON.generate(reply)
  $stdout.flush
end

answer({ ready: true })
$stdin.each_line do |line|
  request = JSON.parse(line)
  at_ns = now_ns
  begin
    send(request["do"], request["task"], request["count"])
    answer({ at_ns: at_ns, seconds: (now_ns - at_ns) / 1e9 })
  rescue StandardError => e
    answer({ error: "#{e.class}: #{e.message}" })
  end
end
