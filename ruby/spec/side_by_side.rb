# frozen_string_literal: true

# side_by_side.rb N [RSPEC-ARG...]: runs the spec files among the arguments in N processes of RSpec,
# side by side. Prints the output of each when it has ended, and exits with 1 if one of them failed.
#   BACKHOP_EACH   a command that runs each process: `broker run model-4.3 --` gives each a model of
#                  its own
require "shellwords"
require "tempfile"

count = Integer(ARGV.shift)
paths, options = ARGV.partition { |argument| File.exist?(argument) }
files = paths.flat_map { |path| File.directory?(path) ? Dir[File.join(path, "**/*_spec.rb")] : [path] }

# The sizes of the files are near enough to their durations, but for files without an example of the
# fast profile.
is_left_out = ->(file) { options.include?("~long") && File.read(file).match?(/^ *RSpec\.describe .*:long/) }
weights = files.to_h { |file| [file, is_left_out.call(file) ? 0 : File.size(file)] }
shares = Array.new(count) { [] }
files.sort_by { |file| -weights[file] }.each { |file| shares.min_by { |share| weights.values_at(*share).sum } << file }

command = [*Shellwords.split(ENV.fetch("BACKHOP_EACH", "")), "rspec", *options]
runs = shares.reject(&:empty?).to_h do |share|
  output = Tempfile.new("rspec")
  [spawn(*command, *share, %i[out err] => output.path), output]
end
statuses = runs.keys.map do
  pid, status = Process.wait2
  puts File.read(runs.fetch(pid).path)
  status
end
exit(statuses.all?(&:success?))
