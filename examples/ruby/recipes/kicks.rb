# frozen_string_literal: true

# A worker of Kicks, in its own processes, until SIGTERM.
#
#     ruby kicks.rb

require "sneakers"
require "sneakers/runner"

$stdout.sync = true
Sneakers.configure(amqp: "amqp://localhost", exchange: "", workers: 2, threads: 4, prefetch: 10, log: $stderr)

def purge(page)
  raise "507 queue is full" if page == "/full"

  puts "#{Process.pid} began #{page}\n"
  sleep 0.2
  puts "#{Process.pid} ended #{page}\n"
end

# README: begin
require "backhop/kicks"

class Purger
  include Sneakers::Worker
  from_queue "cdn-purge", handler: Backhop::Kicks::Handler,
                          backhop: { policy: Backhop::Policy.new(initial: 0.5, max_attempts: 3) }

  def work(payload)
    purge(payload)
    ack!
  end
end
# README: end

Sneakers::Runner.new([Purger]).run
