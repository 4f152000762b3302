# frozen_string_literal: true

# A consumer for bench/outage and bench/hosts: calls the downstream for each message.
#
#     ruby outage.rb bunny|worker
#
# The environment has AMQP_URL, OUTAGE_PORT and OUTAGE_QUEUE.
#
# - OUTAGE_BAD: every fifth message fails by its own fault.
# - OUTAGE_HOSTS: the number of hosts, which are the keys of the breaker.
# - OUTAGE_WITHOUT: without a breaker.

require "net/http"

require "backhop"
require "backhop/bunny"

AT_ONCE = 50
URL = ENV.fetch("AMQP_URL")
PORT = Integer(ENV.fetch("OUTAGE_PORT"))
QUEUE = ENV.fetch("OUTAGE_QUEUE")

# The downstream answered 503.
class Down < StandardError; end

def given?(name) = !ENV[name].to_s.empty?

def bad?(number) = given?("OUTAGE_BAD") && (number % 5).zero?

def host_of(message) = Integer(message.body) % Integer(ENV.fetch("OUTAGE_HOSTS"))

def get(path) = Net::HTTP.start("127.0.0.1", PORT) { |http| http.get(path).code }

def handle(message)
  number = Integer(message.body)
  status = get("/#{bad?(number) ? "bad" : "good"}/#{number}/#{message.attempt}")
  raise ArgumentError, "the message is bad" if bad?(number)
  raise Down if status == "503"
end

note = ->(event) { get("/opened/0/0") if event.name == :breaker_opened }
options = { policy: Backhop::Policy.new(max_attempts: 1000), never: [ArgumentError], on_event: note }
key = method(:host_of) if given?("OUTAGE_HOSTS")
options[:breaker] = Backhop::Breaker.new("the API", errors: [Down], key: key) unless given?("OUTAGE_WITHOUT")

if ARGV.first == "bunny"
  channel = Bunny.new(URL.delete_suffix("/")).start.create_channel
  retrier = Backhop::Bunny::Retrier.new(channel, queue: QUEUE, **options)
  retrier.subscribe(prefetch: AT_ONCE, threads: AT_ONCE) { |message| handle(message) }.wait
else
  Backhop::Worker.new(URL, queue: QUEUE, threads: AT_ONCE, prefetch: AT_ONCE, **options).run { |message| handle(message) }
end
