# frozen_string_literal: true

require "program"
require "running"
require "spec_helper"
require_relative "support"

# The broker delivers a message again whose handler has had it, or still has it, in this process.
RSpec.describe "A message that comes again", skip: NEEDS_BROKER do
  include Live

  # RabbitMQ 4.3 has the limit for each quorum queue.
  def times_out(milliseconds) = { "x-queue-type" => "quorum", "x-consumer-timeout" => milliseconds }

  let(:queue) { broker.queue }
  let(:events) { Running::Events.new }
  let(:calls) { Queue.new }
  let(:policy) { Backhop::Policy.new(kind: :fixed, initial: 1, jitter: :none, max_retry_after: 0) }
  let(:options) { { policy: policy, namespace: namespace, on_event: events } }

  # Returns the calls so far, as [body, attempt], with their number.
  def called = Array.new(calls.size) { calls.pop.tap { |call| calls << call } }.tally

  # Returns how many deliveries wait for an earlier call.
  def waiting = Backhop::Bunny.const_get(:EarlierCalls).instance_variable_get(:@waiting).size

  # Closes the channel of a message. The broker's answer comes after the proxy is released.
  def close_channel(message)
    Thread.new { until_true { !message.original.here? } && proxy.release }
    message.delivery_info.channel.close
  end

  # Yields with a consumer. It consumes by itself again; a consumer of the application does so as
  # another one.
  def consuming_twice(client, url, handler, leave, &about)
    consuming(client, url, queue, handler, **options) do |first|
      leave.call
      next about.call(first) if client == SubscribedClient

      consuming(client, url, queue, handler, **options, &about)
    end
  end

  { "by subscribe" => SubscribedClient, "by wrap" => BunnyClient, "in Kicks" => KicksClient }.each do |name, client|
    it "R4-2: #{name} is not called again if its copy is confirmed, but its channel was lost", long: further?(client) do
      is_left = false
      handler = lambda do |message|
        raise Backhop::Park if message.body == "opens" # the channel that publishes

        channel = message.delivery_info.channel
        calls << [message.body, message.attempt]
        if message.body == "fails" && message.attempt == 1
          until_true { calls.size + channel.work_pool.backlog >= 2 }
          proxy.hold unless is_left # the confirm
          raise "no"
        elsif message.body == "closes" && !is_left
          until_true { broker.count("#{namespace}.wait.1000") == 1 }
          close_channel(message)
          is_left = true
        end
      end
      begin_calls = lambda do
        broker.publish("opens", queue)
        events.get(:parked)
        %w[fails closes].each { |body| broker.publish(body, queue, message_id: body) }
        until_true { is_left }
      end
      consuming_twice(client, proxy.url, handler, begin_calls) do
        until_true { called[["fails", 2]] }
        broker.publish("last", queue, message_id: "last")
        until_true { called[["last", 1]] }
      end
      expect(called).to eq(["fails", 1] => 1, ["closes", 1] => 1, ["fails", 2] => 1, ["last", 1] => 1)
      expect(broker.count(queue)).to eq(0)
      proxy.close
    end

    it "F4-3: #{name} waits for its call that runs", long: further?(client) do
      is_left = false
      handler = lambda do |message|
        calls << [message.body, message.attempt]
        next if is_left

        message.delivery_info.channel.close
        is_left = true
        until_true { waiting == 1 }
      end
      broker.publish("a", queue, message_id: "a")
      consuming_twice(client, URL, handler, -> { until_true { is_left } }) do
        expect(events.get(:succeeded)).to have_attributes(id: "a", attempt: 1)
      end
      expect(called).to eq(["a", 1] => 1)
      expect([broker.count(queue), waiting]).to eq([0, 0])
    end
  end

  it "F4-3: is called if the call that ran has failed" do
    handler = lambda do |message|
      calls << [message.body, message.attempt]
      next if calls.size > 1

      message.delivery_info.channel.close
      until_true { waiting == 1 }
      raise "no"
    end
    broker.publish("a", queue, message_id: "a")
    consuming(SubscribedClient, URL, queue, handler, **options) { events.get(:succeeded) }
    expect(called).to eq(["a", 1] => 2)
    expect(broker.count(queue)).to eq(0)
  end

  it "is called in a forked child, which does not see the end of its parent's call" do
    program = <<~RUBY
      require "backhop/bunny"
      require "timeout"
      connect = lambda do
        channel = Bunny.new(ARGV[0]).start.create_channel
        [channel, Backhop::Bunny::Retrier.new(channel, queue: ARGV[1], namespace: ARGV[2])]
      end
      channel, retrier = connect.call
      ended = Queue.new
      handler = retrier.declare.wrap do |message|
        child = fork do
          called = Queue.new
          _, retrier = connect.call
          retrier.subscribe { |again| called << again.redelivered? }
          puts "redelivered: \#{Timeout.timeout(#{PATIENCE / 2}) { called.pop }}"
          retrier.drain
          exit!(0)
        end
        message.delivery_info.channel.close
        Process.wait(child)
        ended << $?.exitstatus
      end
      channel.queue(ARGV[1], no_declare: true).subscribe(manual_ack: true, &handler)
      exit!(ended.pop)
    RUBY
    broker.publish("a", queue, message_id: "a")
    expect(program(program, URL, queue, namespace).lines.last).to eq("redelivered: true\n")
    expect(broker.count(queue)).to eq(0)
  end

  it "P4-16: is acknowledged if the consumer timeout ended its delivery, also if others were in hand", :long do
    skip "needs RabbitMQ 4.3" if (VERSION <=> [4, 3]).negative?

    queue = broker.queue(times_out(1000))
    bodies = %w[slow second third fourth]
    handler = lambda do |message|
      calls << [message.body, message.attempt]
      until_true { broker.count(queue) == bodies.size } if calls.size == 1 # the broker has them again
    end
    bodies.each { |body| broker.publish(body, queue, message_id: body) }
    consuming(SubscribedClient, URL, queue, handler, **options) do
      events.get(:cancelled)
      broker.publish("last", queue, message_id: "last")
      until_true { called[["last", 1]] }
    end
    expect(called).to eq([*bodies, "last"].to_h { |body| [[body, 1], 1] })
    expect(broker.count(queue)).to eq(0)
  end
end
