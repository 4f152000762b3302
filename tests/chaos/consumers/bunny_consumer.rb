# frozen_string_literal: true

# bunny_consumer.rb QUEUE JOURNAL URL...: consumes over Bunny, which by its own recovery goes on with the next node.

require "backhop/bunny"
require "uri"

QUEUE, JOURNAL, *URLS = ARGV
FILE = File.open(JOURNAL, "a").tap { |file| file.sync = true }
POLICY = Backhop::Policy.new(initial: 0.3, factor: 2, max: 3, jitter: 0.2, max_attempts: 5, max_crashes: 0)

def write(*fields)
  FILE.syswrite("#{[Process.clock_gettime(Process::CLOCK_REALTIME, :millisecond), *fields].join("\t")}\n")
end

NOTE = ->(event) { write("returned", event.count) if event.name == :replayed } # from the unroutable queue

connection = Bunny.new(
  hosts: URLS.map { |url| URI(url).host }, heartbeat: 5, connection_timeout: 5, continuation_timeout: 8000,
  network_recovery_interval: 0.5, recover_from_connection_close: true, hosts_shuffle_strategy: ->(hosts) { hosts },
  recovery_completed: -> { write("connected", "again") }
)
begin
  connection.start
  channel = connection.create_channel
  channel.prefetch(Integer(ENV.fetch("BACKHOP_CHAOS_PREFETCH")))
  retrier = Backhop::Bunny::Retrier.new(channel, queue: QUEUE, policy: POLICY, on_event: NOTE).declare
rescue Bunny::Exception, Backhop::Error, Timeout::Error, SystemCallError => e
  warn e.full_message(highlight: false)
  sleep 0.5
  retry
end
write("connected", connection.host)
channel.queue(QUEUE, no_declare: true).subscribe(manual_ack: true, &retrier.wrap { |message|
  fails = message.attempt <= Integer(message.body.split[1])
  write(fails ? "failed" : "done", message.attempt, ((message.last_delay || 0) * 1000).round, message.routing_key,
        message.headers["x-mark"], message.properties.message_id, message.body)
  raise "507 queue is full" if fails
})
sleep
