# frozen_string_literal: true

# Consumers in the processes of Puma's cluster mode: a part of config/puma.rb.
#
#     puma --config puma.rb

$stdout.sync = true

def purge(page)
  raise "507 queue is full" if page == "/full"

  puts "#{Process.pid} began #{page}\n"
  sleep 0.2
  puts "#{Process.pid} ended #{page}\n"
end

# README: begin
require "backhop/bunny"

workers 2
policy = Backhop::Policy.new(initial: 0.5, max_attempts: 3)
connection = retrier = nil

on_worker_boot do                        # before_worker_boot since Puma 7
  connection = Bunny.new("amqp://localhost").start
  retrier = Backhop::Bunny::Retrier.new(connection.create_channel, queue: "cdn-purge", policy: policy)
  retrier.subscribe(threads: 4) { |message| purge(message.body) }
end

on_worker_shutdown do                    # before_worker_shutdown since Puma 7
  retrier.drain(20)
  connection.close
end
# README: end
