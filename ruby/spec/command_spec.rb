# frozen_string_literal: true

require "open3"
require "socket"

# The operator's command, as the gem carries it.
RSpec.describe "The command" do
  def run(*words) = Open3.capture3(RbConfig.ruby, File.join(Gem.bindir, "backhop"), *words)

  it "is carried where the worker is" do
    out, err, status = run("--version")
    if Backhop.build_info.worker?
      expect([out, status.exitstatus]).to match([start_with("backhop #{Backhop::VERSION} "), 0])
    else
      expect([err, status.exitstatus]).to match([include("built without the command"), 69])
    end
  end

  it "has its own exit codes and messages" do
    skip "there is no command" unless Backhop.build_info.worker?

    _, err, status = run("parked", "list")
    expect([err, status.exitstatus]).to match([include("which work queue?"), 64])
  end

  it "replaces the process of Ruby, so that signals are its own" do
    skip "there is no command" unless Backhop.build_info.worker?

    silent = TCPServer.new("127.0.0.1", 0) # a broker that says nothing
    uri = "amqp://127.0.0.1:#{silent.addr[1]}/"
    command = File.join(Gem.bindir, "backhop")
    Open3.popen2e(RbConfig.ruby, command, "parked", "list", "orders", "--uri", uri) do |_, output, program|
      expect(silent.accept.read(4)).to eq("AMQP")
      expect(File.readlink("/proc/#{program.pid}/exe")).to end_with("/backhop/bin/backhop")
      Process.kill(:INT, program.pid)
      expect([program.value.exitstatus, output.read]).to eq([130, ""])
    end
  end
end
