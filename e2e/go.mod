module example.com/orderfanout/e2e

go 1.26.0

require example.com/orderfanout v0.0.0

replace example.com/orderfanout => ..
