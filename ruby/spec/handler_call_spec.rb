# frozen_string_literal: true

require "spec_helper"

# The contract's case "forks" plays the other ends, on a broker.
RSpec.describe "A child that a handler forked" do
  it "ends with the handler, also if its output is closed" do
    parent = Process.pid
    child = nil
    begin
      Backhop.const_get(:HandlerCall).error_of(nil, nil, ->(_) { false }) do
        child = fork
        $stdout = File.open(File::NULL, "w").tap(&:close) unless child
        nil
      end
    ensure
      exit!(9) unless Process.pid == parent
    end
    expect(Process.wait2(child)[1].exitstatus).to eq(1)
  end
end
