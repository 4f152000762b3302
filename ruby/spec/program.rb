# frozen_string_literal: true

require "rbconfig"
require "timeout"

# Programs of their own, as forks, signals and the end are the whole process's.
module Program
  LOAD_PATHS = $LOAD_PATH.flat_map { |path| ["-I", File.expand_path(path)] }.freeze

  # Starts one, yields its standard input and output, and gives its status; it does not outlive the
  # block.
  def program(text, *arguments)
    command = [RbConfig.ruby, "-W", *LOAD_PATHS, "-e", "$stdout.sync = true\nrequire 'backhop'\n#{text}", *arguments]
    IO.popen(command, "r+", err: %i[child out]) do |io|
      yield io if block_given?
      @output = Timeout.timeout(PATIENCE) { io.read }
    rescue Timeout::Error
      Process.kill("KILL", io.pid)
      raise
    end
    expect($?).to be_success, "#{$?}: #{@output}"
    @output
  end

  # The next line that is this one.
  def await(io, line)
    Timeout.timeout(PATIENCE) do
      lines = []
      lines << (io.gets(chomp: true) || raise("the program ended: #{lines}")) until lines.last == line
    end
  end
end

RSpec.configure { |config| config.include Program }
