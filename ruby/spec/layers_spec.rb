# frozen_string_literal: true

require "ripper"
require "set"
require "tsort"

# Which file of the library uses which: by constants and by require_relative, without a circle.
RSpec.describe "The library" do
  library = $LOADED_FEATURES.grep(%r{/backhop/core\.rb\z}).first.delete_suffix("/backhop/core.rb")

  # Reads the constants that a file defines and uses, as Ruby resolves them: by the modules around.
  reader = Class.new do
    attr_reader :defined, :used

    def initialize(source)
      @defined = []
      @used = []
      visit(Ripper.sexp(source), [])
    end

    private

    def visit(node, scope)
      return unless node.is_a?(Array)

      case node.first
      when :module, :class then define(node, scope)
      when :assign then assign(node, scope)
      when :const_path_ref, :top_const_ref then @used << [scope, path(node)] if path(node)
      when :var_ref then node[1].first == :@const ? @used << [scope, [node[1][1]]] : visit_all(node, scope)
      else visit_all(node, scope)
      end
    end

    def visit_all(node, scope) = node.each { |each| visit(each, scope) }

    def define(node, scope)
      inner = scope + path(node[1])
      @defined << inner
      node.drop(2).each { |each| visit(each, inner) }
    end

    def assign(node, scope)
      target = node[1]
      @defined << (scope + [target[1][1]]) if target.first == :var_field && target[1]&.first == :@const
      visit(node[2], scope)
    end

    # Returns the names of A::B::C; nil if the path begins with an expression.
    def path(node)
      case node.first
      when :const_ref, :var_ref then node[1].first == :@const ? [node[1][1]] : nil
      when :top_const_ref then [:top, node[1][1]]
      when :const_path_ref then path(node[1])&.push(node[2][1])
      end
    end
  end

  # Strongly connected parts of a Hash of files.
  graph = Class.new do
    include TSort

    def initialize(edges) = @edges = edges
    def tsort_each_node(&block) = @edges.each_key(&block)
    def tsort_each_child(node, &block) = @edges.fetch(node).each(&block)
    def circles = strongly_connected_components.select { |each| each.size > 1 }
  end

  sources = Dir[File.join(library, "{backhop.rb,backhop/**/*.rb}")].to_h do |path|
    [path.delete_prefix("#{library}/"), File.read(path)]
  end
  entries = %w[backhop.rb] + sources.keys.select { |name| sources[name].lines.grep(/^(module|class) /).empty? } +
            %w[backhop/bunny.rb backhop/kicks.rb] # which load others, and define nothing that others use
  files = sources.except(*entries).transform_values { |text| reader.new(text) }
  homes = files.each_with_object({}) do |(name, read), all|
    read.defined.each { |path| (all[path] ||= Set.new) << name }
  end
  # A module that several files open belongs to none of them.
  homes.select! { |_, names| names.size == 1 }

  # The file that defines a constant, as seen from within a scope; nil if it is none of the library.
  resolve = lambda do |scope, path|
    return homes[path.drop(1)]&.first if path.first == :top

    scope.size.downto(0) do |depth|
      path.size.downto(1) do |length|
        found = homes[scope.first(depth) + path.first(length)]
        return found.first if found
      end
    end
    nil
  end
  edges = files.to_h do |name, read|
    [name, (read.used.filter_map { |scope, path| resolve.call(scope, path) } - [name]).to_set]
  end

  it "is read" do
    expect(edges.fetch("backhop/topology.rb")).to include("backhop/policy.rb", "backhop/core.rb", "backhop/checks.rb")
    expect(edges.fetch("backhop/bunny/retrier.rb"))
      .to include("backhop/bunny/publisher_thread.rb", "backhop/retrier.rb")
  end

  it "has no circle of files" do
    expect(graph.new(edges).circles).to be_empty
  end

  it "has nouns that use neither a client, nor the worker, nor what observes" do
    nouns = edges.select { |name, _| name.count("/") == 1 && !%w[backhop/worker.rb backhop/retrier.rb].include?(name) }
    above = %r{\Abackhop/(worker|bunny|kicks|observe)(/|\.rb)}
    expect(nouns.values.flat_map(&:to_a).grep(above)).to be_empty
  end

  it "has a circle where one is made" do
    turned = edges.merge("backhop/policy.rb" => edges.fetch("backhop/policy.rb") + ["backhop/topology.rb"])
    expect(graph.new(turned).circles.flatten).to include("backhop/policy.rb", "backhop/topology.rb")
  end
end
