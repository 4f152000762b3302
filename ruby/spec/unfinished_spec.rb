# frozen_string_literal: true

require "async"
require "concurrent"
require "spec_helper"

# P4-1: a handler that returns work that has not ended.
RSpec.describe "A value that a handler returns" do
  def rehearsed(&handler) = Backhop::Testing.rehearse("body", policy: Backhop::Policy.new(max_attempts: 2), &handler)

  def threads = @threads ||= []

  after do
    threads.each(&:kill)
    Console.logger.enable(Async::Task, Console.logger.level)
  end

  unfinished = {
    "a thread" => ->(threads) { Thread.new { sleep }.tap { |thread| threads << thread } },
    "an enumerator" => ->(_) { [1].each },
    "a lazy enumerator" => ->(_) { [1].lazy.map { |number| raise "it runs: #{number}" if number } },
    "a lambda" => ->(_) { -> { raise "it runs" } },
    "a method" => ->(_) { method(:raise) },
    "a fiber" => ->(_) { Fiber.new { nil } },
    "a Concurrent::Promise" => ->(_) { Concurrent::Promise.new { nil } },
    "a Concurrent::Future" => ->(_) { Concurrent::Future.new { nil } },
    "a Concurrent::Delay" => ->(_) { Concurrent::Delay.new { nil } },
    "a Concurrent::Promises::Future" => ->(_) { Concurrent::Promises.resolvable_future }
  }
  unfinished.each do |name, value|
    it "fails its attempt if it is unfinished: #{name}" do
      rehearsal = rehearsed { instance_exec(threads, &value) }
      expect(rehearsal.map { |each| each.plan.action }).to eq(%i[retry park])
      expect(rehearsal.first.error).to be_a(Backhop::StateError)
      expect(rehearsal.first.error.message).to match(/\Athe handler returned an? .*: .* in the handler, or return nil/)
    end
  end

  it "fails its attempt if it is a task that still runs" do
    Sync do |task|
      children = []
      rehearsal = rehearsed { task.async { |each| each.sleep(60) }.tap { |child| children << child } }
      expect(rehearsal.first.error.message).to include("an Async::Task that still runs")
      children.each(&:stop)
    end
  end

  failed = {
    "a thread" => lambda do
      Thread.new { raise IOError, "507" }.tap do |thread|
        thread.report_on_exception = false
        sleep 0.001 while thread.alive?
      end
    end,
    "a Concurrent::Promise" => -> { Concurrent::Promise.execute { raise IOError, "507" }.tap(&:wait) },
    "a Concurrent::Promises::Future" => -> { Concurrent::Promises.rejected_future(IOError.new("507")) },
    "a task" => lambda do
      Console.logger.disable(Async::Task)
      Async { raise IOError, "507" }
    end
  }
  failed.each do |name, value|
    it "fails its attempt with the error of the work: #{name}" do
      expect(rehearsed { value.call }.first.error).to be_a(IOError)
    end
  end

  it "is any other value, and the message is acknowledged" do
    values = [nil, false, true, 1, "text", [], {}, Object.new, BasicObject.new, Thread.current, Fiber.current,
              Thread.new { nil }.join, Concurrent::Promise.execute { nil }.tap(&:wait), proc { raise "it runs" },
              Concurrent::Promises.fulfilled_future(1), Async { 1 }, 1.step(9, 2), Process.detach(spawn("true"))]
    values.each { |value| expect(rehearsed { value }.first.plan.action).to eq(:ack) }
  end
end
