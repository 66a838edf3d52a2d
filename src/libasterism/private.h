/* The names that the library's own files share, as programs that link it must not meet them. A test
   looks at what is left in the object files. */

#ifndef ASTERISM_PRIVATE_H
#define ASTERISM_PRIVATE_H

#define TYPES asterism_TYPES_
#define below asterism_below_
#define cut_off asterism_cut_off_
#define fail asterism_fail_
#define fill asterism_fill_
#define find_shapes asterism_find_shapes_
#define fit asterism_fit_
#define free_tensors asterism_free_tensors_
#define geometry_of asterism_geometry_of_
#define joined asterism_joined_
#define kept asterism_kept_
#define magnitude_bits asterism_magnitude_bits_
#define make asterism_make_
#define make_axes asterism_make_axes_
#define make_mask asterism_make_mask_
#define make_norm asterism_make_norm_
#define make_recurrent asterism_make_recurrent_
#define make_sources asterism_make_sources_
#define make_sparse asterism_make_sparse_
#define make_steps asterism_make_steps_
#define make_taps asterism_make_taps_
#define make_windows asterism_make_windows_
#define masked asterism_masked_
#define multiply asterism_multiply_
#define new_tensor asterism_new_tensor_
#define pool_axis asterism_pool_axis_
#define pool_window asterism_pool_window_
#define prepare asterism_prepare_
#define read_fast asterism_read_fast_
#define read_file asterism_read_file_
#define read_graph asterism_read_graph_
#define read_small asterism_read_small_
#define run asterism_run_
#define run_attention asterism_run_attention_
#define run_cat asterism_run_cat_
#define run_conv asterism_run_conv_
#define run_hide asterism_run_hide_
#define run_linear asterism_run_linear_
#define run_node asterism_run_node_
#define run_norm asterism_run_norm_
#define run_pad asterism_run_pad_
#define run_pool asterism_run_pool_
#define run_recurrent asterism_run_recurrent_
#define run_resize asterism_run_resize_
#define run_steps asterism_run_steps_
#define run_two asterism_run_two_
#define some asterism_some_
#define take asterism_take_
#define to_float asterism_to_float_
#define varint asterism_varint_
#define weight_of asterism_weight_of_
#define word_at asterism_word_at_

#endif
