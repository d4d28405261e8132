module example.com/orderfanout/services/analytics

go 1.26.0

require example.com/orderfanout v0.0.0

replace example.com/orderfanout => ../..
