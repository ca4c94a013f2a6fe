# The jobs of Sidekiq, and the marks that report that they ran (see protocol.py).

require "sidekiq"

MARKS = File.open(ENV.fetch("PEER_MARKS"), File::WRONLY | File::APPEND | File::CREAT)
MARKS.sync = true

Sidekiq.configure_server { |config| config.redis = { url: ENV.fetch("PEER_URL") } }
Sidekiq.configure_client { |config| config.redis = { url: ENV.fetch("PEER_URL") } }
# Two log lines per job would be measured otherwise.
Sidekiq.logger.level = Logger::WARN

class Noop
  include Sidekiq::Job
  def perform(number) = MARKS.syswrite(".\n")
end

class Three
  include Sidekiq::Job
  def perform(number, address, amount) = MARKS.syswrite(".\n")
end

class ThreeLong
  include Sidekiq::Job
  def perform(number, text, amount) = MARKS.syswrite(".\n")
end

class Io
  include Sidekiq::Job

  def perform(number)
    sleep(0.001)
    MARKS.syswrite(".\n")
  end
end

class StartTime
  include Sidekiq::Job

  def perform
    MARKS.syswrite(format("%020d\n", Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)))
  end
end

class Second
  include Sidekiq::Job

  def perform(number)
    MARKS.syswrite(format("b%03d\n", number))
    sleep(1)
    MARKS.syswrite(format("e%03d\n", number))
  end
end
