# frozen_string_literal: true

require "spec_helper"
require "program"
require "running"
require_relative "support"

# The parts that are the same everywhere, and how a retrier consumes by itself.
RSpec.describe "One interface", skip: NEEDS_BROKER do
  include Live

  let(:queue) { broker.queue }
  let(:parked) { "#{queue}.parked" }
  let(:options) { { policy: QUICK, namespace: namespace } }

  it "goes on after a lost connection, with one consumer, and Bunny has nothing to complain of" do
    handler = Handler.new
    bunny = StringIO.new
    given = { **options, bunny: { logger: Logger.new(bunny) } }
    handler.define_singleton_method(:call) do |message|
      super(message)
      raise "again" if message.attempt < 2
    end
    connected(BunnyClient, proxy.url, queue, nil, **given) do |client|
      subscription = client.retrier.subscribe(handler)
      3.times do |round|
        broker.publish(round.to_s, queue)
        until_true { handler.messages.any? { |each| each.body == round.to_s && each.attempt == 2 } }
        proxy.cut
        until_true { client.connection.open? && subscription.channel.open? }
      end
      broker.publish("last", queue)
      until_true { handler.messages.any? { |each| each.body == "last" && each.attempt == 2 } }
      until_true { broker.channel.queue_declare(queue, passive: true).consumer_count == 1 }
      subscription.cancel
      client.retrier.drain(PATIENCE)
    end
    expect(bunny.string).not_to include("Caught an exception while recovering")
    proxy.close
  end

  it "refuses a message of another queue, and says what a consumer without manual_ack loses" do
    other = broker.queue
    handler = Handler.failing(1, Backhop::Park)
    connected(BunnyClient, URL, queue, nil, **options) do |client|
      client.declare
      broker.publish("other", other)
      client.channel.queue(other, no_declare: true).subscribe(manual_ack: true, &client.retrier.wrap(handler))
      until_true { log.string.include?("make a retrier for each queue") }
      broker.publish("body", queue)
      client.channel.queue(queue, no_declare: true).subscribe(&client.retrier.wrap(handler))
      expect(broker.bodies(parked, 1)).to eq(["body"])
      expect(log.string).to include("consume with manual_ack: true")
      client.retrier.drain(PATIENCE)
      expect(client.channel).to be_open
    end
    expect(handler.messages.map(&:body)).to eq(["body"])
    until_true { broker.count(other) == 1 }
  end

  it "tells of a message whose channel is gone when its handler ends that it comes again, and nothing else" do
    events = Queue.new
    connected(BunnyClient, URL, queue, nil, **options, on_event: events.method(:push)) do |client|
      client.declare
      broker.publish("body", queue, message_id: "m1")
      work = client.channel.queue(queue, no_declare: true)
      delivery = until_true { work.pop(manual_ack: true).then { |got| got if got.first } }
      message = client.retrier.read(*delivery)
      client.channel.close
      client.retrier.settle(message)
    end
    told = Array.new(events.size) { events.pop }
    expect(told.map(&:name)).to eq(%i[delivered stale])
    expect(told.last).to have_attributes(id: "m1", text: /the broker delivers it again/)
    until_true { broker.count(queue) == 1 }
  end

  it "says why the channel closed to a ported handler that still acknowledges, and consumes on" do
    broker.publish("body", queue)
    connected(BunnyClient, URL, queue, nil, **options) do |client|
      handled = Queue.new
      subscription = client.retrier.subscribe do |message|
        handled << message.body
        message.delivery_info.channel.ack(message.delivery_info.delivery_tag) if message.body == "body"
      end
      until_true { log.string.include?("acknowledged or rejected twice, or needs no acknowledgement") }
      broker.publish("next", queue)
      expect(Array.new(2) { Timeout.timeout(PATIENCE) { handled.pop } }).to eq(%w[body next])
      subscription.cancel
      client.retrier.drain(PATIENCE)
    end
  end

  it "handles the broker's close of a channel while another thread opens one" do
    connected(BunnyClient, URL, queue, nil, **options) do |client|
      client.declare
      channel = client.connection.create_channel
      # A thread that opens a channel has this lock until Bunny's own thread has read the broker's
      # answer.
      client.connection.instance_variable_get(:@channel_mutex).synchronize do
        expect { channel.queue_declare("#{queue}-missing", passive: true) }.to raise_error(Bunny::NotFound)
      end
      until_true { client.connection.find_channel(channel.id).nil? }
    end
  end

  it "logs what on_event raises, and goes on" do
    broker.publish("body", queue)
    given = { **options, on_event: ->(_) { raise KeyError, "no" } }
    consuming(BunnyClient, URL, queue, Handler.failing(3), **given) { broker.bodies(parked, 1) }
    lines = %w[retried parked].map { |at| "a listener failed at #{at} of \"#{queue}\": KeyError: no" }
    expect(log.string).to include(*lines)
    expect(broker.count(queue)).to eq(0)
  end

  context "of workers", :worker do
    it "ends at once where a handler exits and no other has a message" do
      broker.publish("body", queue)
      started = now
      worker = Backhop::Worker.new(URL, queue: queue, **options, drain: PATIENCE, connect_timeout: PATIENCE / 2)
      expect { worker.run { |_| exit } }.to raise_error(SystemExit)
      expect(now - started).to be < PATIENCE / 2
      expect(broker.get(queue).last).to eq("body")
    end

    it "lets other handlers settle before it ends where one exits" do
      %w[exit slow].each { |body| broker.publish(body, queue) }
      slow = Queue.new
      worker = Backhop::Worker.new(
        URL, queue: queue, **options, threads: 2, drain: PATIENCE, connect_timeout: PATIENCE / 2
      )
      run = Thread.new do
        worker.run do |message|
          if message.body == "slow"
            slow << message.body
            until_true { worker.instance_variable_get(:@run).failures.any? } # the other one has exited
            next
          end
          sleep 0.01 while slow.empty?
          exit
        end
      end
      run.report_on_exception = false
      expect { run.value }.to raise_error(SystemExit)
      expect(broker.get(queue).last).to eq("exit")
      expect(broker.count(queue)).to eq(0)
    end

    it "drains all that run in a process at a signal, which the one before them hears too, and has back" do
      other = broker.queue
      output = program(<<~'RUBY', URL, queue, other) { |io| await(io, "ready 2") || Process.kill("TERM", io.pid) }
        heard = 0
        Signal.trap("TERM") { $stdout.write("heard\n") && heard += 1 }
        connected = Queue.new
        threads = ARGV[1..2].map do |name|
          worker = Backhop::Worker.new(ARGV[0], queue: name, mode: :none, connect_timeout: 60,
                                                on_event: ->(event) { connected << 1 if event.name == :connected })
          Thread.new { worker.run { nil } }
        end
        2.times { connected.pop }
        puts "ready 2"
        threads.each(&:join)
        puts "drained"
        Process.kill("TERM", Process.pid)
        sleep 0.01 until heard == 2
      RUBY
      expect(output.lines(chomp: true)).to eq(%w[heard drained heard])
    end

    it "leaves signals to the host of serve" do
      output = program(<<~'RUBY', URL, queue) { |io| await(io, "ready") || Process.kill("TERM", io.pid) }
        require "async"
        connected = Queue.new
        worker = Backhop::Worker.new(ARGV[0], queue: ARGV[1], mode: :none, connect_timeout: 60,
                                              on_event: ->(event) { connected << 1 if event.name == :connected })
        Signal.trap("TERM") { Thread.new { puts "host"; worker.stop } }
        serving = Thread.new { Async { worker.serve { nil } }.wait }
        connected.pop
        puts "ready"
        serving.join
        puts "served"
      RUBY
      expect(output.lines(chomp: true)).to eq(%w[host served])
    end
  end
end
