# frozen_string_literal: true

require "native"

HEADERS = File.expand_path("../../core/include/backhop", __dir__)

# Every function of the core's headers is in bindings/.
RSpec.describe "The bindings", if: File.directory?(HEADERS) do
  nouns = %w[delivery history policy breaker flow subscription silence calls plan topology declared declaring
             ledger message worker event log metrics health]
  # push_int, exchange, set and the like call these; the last one blocks, and calls back.
  left_out = %w[bh_delivery_push bh_delivery_read bh_silence_read bh_topology_defaults
                bh_topology_add_work_queue_argument bh_worker_defaults bh_worker_run]

  texts = Dir[File.join(HEADERS, "**/*.h")].map { |path| File.read(path).gsub(%r{/\*.*?\*/}m, "") }
  functions = texts.flat_map { |text| text.scan(/BH_API [\w\s*]*?(bh_\w+)\(/).flatten }.uniq
  enumerators = texts.flat_map { |text| text.scan(/typedef enum bh_\w+ \{([^()]*?)\}/).flatten }
                     .flat_map { |body| body.scan(/\bBH_\w+/) }.uniq

  # Where Ruby has a function: bh_policy_check is Policy#check, bh_policy_new Native.bh_policy_new;
  # an object frees itself.
  define_method(:bound?) do |function|
    noun, verb = function.delete_prefix("bh_").split("_", 2)
    return true if Native.respond_to?(function)
    return false unless nouns.include?(noun)

    verb == "free" || Native.const_get(noun.capitalize).method_defined?(verb)
  end

  it "are read from the headers" do
    expect(functions).to include("bh_version", "bh_plan_make", "bh_worker_librabbitmq", "bh_delivery_header_bytes")
    expect(enumerators).to include("BH_KIND_STEPS", "BH_MODE_NONE")
  end

  it "have every public function but what is left out" do
    expect(functions.reject { |function| bound?(function) }).to eq(left_out)
  end

  it "have every enumerator but those of the command" do
    expect(enumerators.reject { |name| Native.const_defined?(name) }).to eq(%w[BH_DIALECT_COMMAND BH_DIALECT_RELAY])
  end

  it "are all of use to the gem" do
    library = $LOADED_FEATURES.grep(%r{/backhop/core\.rb\z}).first.delete_suffix("/core.rb")
    text = Dir["#{library}{.rb,/**/*.rb}"].map { |path| File.read(path) }.join
    # These have no classes of their own, or one for both kinds.
    unclassed = functions.grep(/\Abh_(ledger|breaker|flow|subscription|silence|calls)/)
    unused = (functions - left_out - unclassed).reject do |function|
      verb = function.delete_prefix("bh_").split("_", 2).last
      verb == "free" || text.match?(/\b(#{function}|(native|taken|made|all|worker|metrics|log)\.#{verb})\b/)
    end
    expect(unused).to contain_exactly("bh_worker_attempt", "bh_event_field_is_string",
                                      "bh_event_is_of_each", "bh_event_set_history", # which fill_message calls
                                      "bh_log_omitted_line",
                                      "bh_plan_copy_properties") # Bunny encodes its publishes
  end
end
