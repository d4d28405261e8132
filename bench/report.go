package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report is everything that one run of bench has measured.
type report struct {
	Machine string    `json:"machine"`
	Quick   bool      `json:"quick"`
	Works   []summary `json:"works"`
}

// summary is one work.
type summary struct {
	Work  string     `json:"work"`
	Unit  string     `json:"unit"`
	Sizes bool       `json:"sizes,omitempty"` // the lines are sizes
	Lines []line     `json:"contenders"`
	Goals []goalLine `json:"goals"`
}

// line is one contender; its figures are medians over the rounds.
type line struct {
	Name       string   `json:"name"`
	Size       int      `json:"size,omitempty"`
	Settings   string   `json:"settings"`
	Rate       float64  `json:"rate"`
	Least      float64  `json:"rate_least"`
	Most       float64  `json:"rate_most"`
	CPUMillion float64  `json:"cpu_seconds_per_million"`
	PeakBytes  int64    `json:"peak_bytes"`
	P50        float64  `json:"p50_ms,omitempty"`
	P99        float64  `json:"p99_ms,omitempty"`
	Runs       []result `json:"runs"`
}

type goalLine struct {
	What  string  `json:"what"`
	Got   float64 `json:"got"`
	Limit float64 `json:"limit"`
	Met   bool    `json:"met"`
}

func summarize(w work, results [][]result) summary {
	s := summary{Work: w.name, Unit: w.unit, Sizes: w.sizes}
	rates := make(map[string][]float64)
	for i, c := range w.contenders {
		runs := results[i]
		var rate, cpu, peak, p50, p99 []float64
		for _, r := range runs {
			rate = append(rate, r.rate())
			cpu = append(cpu, r.CPU/float64(r.N)*1e6)
			peak = append(peak, float64(r.PeakBytes))
			if n := len(r.Latencies); n > 0 {
				p50, p99 = append(p50, ms(r.Latencies[n/2])), append(p99, ms(r.Latencies[n*99/100]))
			}
		}
		rates[c.name] = rate
		l := line{Name: c.name, Size: c.size, Settings: c.settings, Rate: median(rate), Least: slices.Min(rate), Most: slices.Max(rate), CPUMillion: median(cpu), PeakBytes: int64(median(peak))}
		if len(p50) > 0 {
			l.P50, l.P99 = median(p50), median(p99)
			for i := range runs {
				runs[i].Latencies = nil // too many for a file
			}
		}
		l.Runs = runs
		s.Lines = append(s.Lines, l)
	}
	best := ""
	for _, c := range w.contenders {
		if isPeer(c.name) && (best == "" || median(rates[c.name]) > median(rates[best])) {
			best = c.name
		}
	}
	for _, g := range w.goals {
		if g.p99 > 0 {
			l := s.Lines[slices.IndexFunc(s.Lines, func(l line) bool { return l.Name == g.who })]
			s.Goals = append(s.Goals,
				goalLine{What: fmt.Sprintf("%s: p50 ≤ %.4g ms", g.who, g.p50), Got: l.P50, Limit: g.p50, Met: l.P50 <= g.p50},
				goalLine{What: fmt.Sprintf("%s: p99 ≤ %.4g ms", g.who, g.p99), Got: l.P99, Limit: g.p99, Met: l.P99 <= g.p99})
			continue
		}
		gl := goalLine{What: fmt.Sprintf("%s ≥ %.4g × %s", g.who, g.least, g.against), Limit: g.least}
		if g.against == "" {
			gl.What, gl.Got = fmt.Sprintf("%s ≥ %.0f %s", g.who, g.least, w.unit), median(rates[g.who])
		} else if g.against == bestPeer {
			gl.Got = medianRatio(rates[g.who], rates[best])
		} else {
			gl.Got = medianRatio(rates[g.who], rates[g.against])
		}
		gl.Met = gl.Got >= g.least
		s.Goals = append(s.Goals, gl)
	}
	return s
}

// medianRatio is the median of the rounds' ratios: what disturbs the machine disturbs a whole round.
func medianRatio(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return median(ratios)
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// print writes the work's table: each contender's figures, and the first contender's rate by its own; in a work of sizes, its rate by that of
// the smallest.
func (s summary) print(to io.Writer) {
	fmt.Fprintf(to, "\n%s, %s\n", s.Work, s.Unit)
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	timed := s.Lines[0].P50 > 0
	ratio := "ours is"
	if s.Sizes {
		ratio = "of the first"
	}
	head := "\trate\tof all rounds\t" + ratio + "\tCPU s / million\tpeak MB\t"
	if timed {
		head += "p50 ms\tp99 ms\t"
	}
	fmt.Fprintln(t, head)
	for _, l := range s.Lines {
		ratio := s.Lines[0].Rate / l.Rate
		if s.Sizes {
			ratio = 1 / ratio
		}
		fmt.Fprintf(t, "%s\t%s\t%s to %s\t%.3g ×\t%.3g\t%.0f\t", l.Name, thousands(l.Rate), thousands(l.Least), thousands(l.Most), ratio, l.CPUMillion, float64(l.PeakBytes)/1e6)
		if timed {
			fmt.Fprintf(t, "%.2f\t%.2f\t", l.P50, l.P99)
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	if s.Sizes {
		fmt.Fprintf(to, "  %s\n", s.Lines[0].Settings)
	} else {
		for _, l := range s.Lines {
			fmt.Fprintf(to, "  %s: %s\n", l.Name, l.Settings)
		}
	}
	for _, g := range s.Goals {
		verdict := "met"
		if !g.Met {
			verdict = "MISSED"
		}
		fmt.Fprintf(to, "  goal %s: %.3g, %s\n", g.What, g.Got, verdict)
	}
}

// thousands groups the digits of a whole number.
func thousands(f float64) string {
	digits := fmt.Sprintf("%.0f", f)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func machine() string {
	parts := []string{runtime.GOOS, runtime.GOARCH, fmt.Sprint(runtime.NumCPU(), " CPUs"), runtime.Version()}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for text := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(text, ":"); ok && strings.TrimSpace(name) == "model name" {
				parts = append(parts, strings.TrimSpace(value))
				break
			}
		}
	}
	return strings.Join(parts, ", ")
}
