// Command rules reads Prometheus' rules with Prometheus' own code: rulefmt checks a file as Prometheus does when it loads it, and
// the query engine answers expressions on series given here. promtool does as much, and brings the clients of twenty clouds.
//
// Standard input: {"rules": "text of a rule file", "series": "...", "queries": [{"name": "...", "expr": "...", "at": 60}]}.
// `series` has a line each, in the notation of promtool's tests: metric{label="value"} 1x3 2 _; values are 15 s apart, from 0 s.
// Standard output: {"problems": ["..."], "answers": {"name": [{"labels": {}, "value": 1}] or "an error"}}.
package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

const step = 15 * time.Second

type query struct {
	Name string  `json:"name"`
	Expr string  `json:"expr"`
	At   float64 `json:"at"`
}

type request struct {
	Rules   string  `json:"rules"`
	Series  string  `json:"series"`
	Queries []query `json:"queries"`
}

type answer struct {
	Labels map[string]string `json:"labels"`
	Value  float64           `json:"value"`
}

func main() {
	var asked request
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		panic(err)
	}
	p := parser.NewParser(parser.Options{})
	problems := []string{}
	if asked.Rules != "" {
		_, errs := rulefmt.Parse([]byte(asked.Rules), false, model.UTF8Validation, p, slog.New(slog.DiscardHandler))
		for _, err := range errs {
			problems = append(problems, err.Error())
		}
	}
	series, err := read(asked.Series, p)
	if err != nil {
		problems = append(problems, err.Error())
	}
	queryable := &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: series.selected}}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: 10 * time.Second, Parser: p})
	answers := map[string]any{}
	for _, one := range asked.Queries {
		answers[one.Name] = evaluate(engine, queryable, one)
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"problems": problems, "answers": answers}); err != nil {
		panic(err)
	}
}

func evaluate(engine *promql.Engine, from storage.Queryable, one query) any {
	asked, err := engine.NewInstantQuery(context.Background(), from, nil, one.Expr, time.UnixMilli(int64(one.At*1000)))
	if err != nil {
		return err.Error()
	}
	defer asked.Close()
	vector, err := asked.Exec(context.Background()).Vector()
	if err != nil {
		return err.Error()
	}
	found := []answer{}
	for _, sample := range vector {
		found = append(found, answer{Labels: sample.Metric.Map(), Value: sample.F})
	}
	return found
}

type held []*storage.SeriesEntry

func read(text string, p parser.Parser) (held, error) {
	var all held
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		metric, values, err := p.ParseSeriesDesc(line)
		if err != nil {
			return nil, err
		}
		var samples []chunks.Sample
		for i, value := range values {
			if !value.Omitted {
				samples = append(samples, sample{int64(i) * step.Milliseconds(), value.Value})
			}
		}
		all = append(all, storage.NewListSeries(metric, samples))
	}
	return all, nil
}

func (all held) selected(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &set{SeriesSet: storage.EmptySeriesSet(), at: -1}
	for _, one := range all {
		if matches(one.Labels(), matchers) {
			found.series = append(found.series, one)
		}
	}
	return found
}

func matches(ls labels.Labels, matchers []*labels.Matcher) bool {
	for _, matcher := range matchers {
		if !matcher.Matches(ls.Get(matcher.Name)) {
			return false
		}
	}
	return true
}

type set struct {
	storage.SeriesSet // for its Warnings: none
	series            held
	at                int
}

func (s *set) Next() bool         { s.at++; return s.at < len(s.series) }
func (s *set) At() storage.Series { return s.series[s.at] }
func (s *set) Err() error         { return nil }

type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }
